// Sinkhorn's iteration in the logarithm. Included once for each instruction set, inside its namespace.
//
//   K = exp(Z),  v = 1;    u_i = 1 / sum_j K_ij v_j,  v_j = 1 / sum_i K_ij u_i,  S times;    B_ij = u_i K_ij v_j
//
// Rounding does not add up over the iterations: K stays as it is. Backward makes them again, keeps u and v of each, and goes
// through them in reverse: with a and b the gradients at log u and log v, and P_ij = u_i K_ij v_j before each step,
//   b at log v:  a_i -= sum_j P_ij b_j;     a at log u:  b_j = -sum_i P_ij a_i;    both take P_ij b_j or P_ij a_i from Z's.
// Where logits of a row differ by more than RANGE, u and v could leave the range of float: such matrices are computed in
// double, with the logarithms of u and v.
// d = streams, S = number of iterations, p = d²

template <int D> struct Sinkhorn {
    static constexpr float RANGE = 32;

    static int64_t scratch(const Part &part) {
        const int64_t d = part.d;
        return 4 * d * (part.number + 1) + 4 * d * d + 4 * d;
    }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t lanes, Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const k = memory.take<Lanes>(d * d), *const u = memory.take<Lanes>(d), *const v = memory.take<Lanes>(d);
        const uint32_t wide = lanes & ~at_most<float>(RANGE, exponentials(d, logits, k));
        for (int j = 0; j < d; j++) v[j] = Lanes{} + 1.f;
        for (int t = 0; t < part.number; t++) iterate(d, k, v, u, v);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) image[i * d + j] = u[i] * k[i * d + j] * v[j];
        if (wide != 0) Sinkhorn<0>::in_doubles(part, logits, nullptr, image, wide, memory);
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t lanes,
                         Memory memory) {
        const int d = D ? D : part.d, steps = part.number;
        Lanes *const k = memory.take<Lanes>(d * d), *const taken = memory.take<Lanes>(d * d);
        Lanes *const a = memory.take<Lanes>(d), *const b = memory.take<Lanes>(d);
        Lanes *const us = memory.take<Lanes>(d * (steps + 1)), *const vs = memory.take<Lanes>(d * (steps + 1));
        const uint32_t wide = lanes & ~at_most<float>(RANGE, exponentials(d, logits, k));
        for (int j = 0; j < d; j++) vs[j] = Lanes{} + 1.f, a[j] = b[j] = Lanes{};
        for (int t = 1; t <= steps; t++) iterate(d, k, vs + (t - 1) * d, us + t * d, vs + t * d);
        const Lanes *u = us + steps * d, *v = vs + steps * d;
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) {
                const Lanes share = grad[i * d + j] * (u[i] * k[i * d + j] * v[j]);
                grad_logits[i * d + j] = share, taken[i * d + j] = Lanes{};
                a[i] += share, b[j] += share;
            }
        for (int t = steps; t > 0; t--, u -= d, v -= d) {
            reverse<false>(d, k, u, v, b, a, taken);
            reverse<true>(d, k, v - d, u, a, b, taken);
        }
        for (int i = 0; i < d * d; i++)
            grad_logits[i] = unless_saturated<float>(grad_logits[i] - k[i] * taken[i], logits[i]);
        if (wide != 0) Sinkhorn<0>::in_doubles(part, logits, grad, grad_logits, wide, memory);
    }

    // By logarithms of u and v: the image, or with `grad` the gradient at the logits, of these lanes.
    static void in_doubles(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *out, uint32_t wanted,
                           Memory memory) {
        const int d = part.d, steps = part.number;
        Doubles *const z = memory.take<Doubles>(d * d), *const results = memory.take<Doubles>(d * d);
        Doubles *const a = memory.take<Doubles>(d), *const b = memory.take<Doubles>(d);
        Doubles *const us = memory.take<Doubles>(d * (steps + 1)), *const vs = memory.take<Doubles>(d * (steps + 1));
        for (int half = 0; half < 2; half++) {
            const uint32_t lanes = wanted >> half * HALF & ((1u << HALF) - 1);
            if (lanes == 0) continue;
            for (int i = 0; i < d * d; i++) z[i] = saturated<double>(widened(logits[i], half));
            for (int j = 0; j < d; j++) vs[j] = a[j] = b[j] = Doubles{};
            for (int t = 1; t <= steps; t++) {
                for (int i = 0; i < d; i++) us[t * d + i] = -log_sum(d, z + i * d, 1, vs + (t - 1) * d);
                for (int j = 0; j < d; j++) vs[t * d + j] = -log_sum(d, z + j, d, us + t * d);
            }
            const Doubles *u = us + steps * d, *v = vs + steps * d;
            for (int i = 0; i < d; i++)
                for (int j = 0; j < d; j++) {
                    Doubles &result = results[i * d + j];
                    result = exponential<double>(z[i * d + j] + u[i] + v[j]);
                    if (grad == nullptr) continue;
                    result *= widened(grad[i * d + j], half);
                    a[i] += result, b[j] += result;
                }
            for (int t = grad == nullptr ? 0 : steps; t > 0; t--, u -= d, v -= d) {
                take_shares<false>(d, z, u, v, b, a, results);
                take_shares<true>(d, z, v - d, u, a, b, results);
            }
            for (int i = 0; i < d * d && grad != nullptr; i++)
                results[i] = unless_saturated<double>(results[i], widened(logits[i], half));
            merge(out, results, d * d, half, lanes);
        }
    }

  private:
    // Rows may be divided by anything: their largest entry becomes one. Returns the largest difference in a row.
    static Lanes exponentials(int d, const Lanes *logits, Lanes *k) {
        for (int i = 0; i < d; i++) {
            Lanes largest = saturated<float>(logits[i * d]);
            for (int j = 1; j < d; j++) largest = at_least(saturated<float>(logits[i * d + j]), largest);
            for (int j = 0; j < d; j++) k[i * d + j] = saturated<float>(logits[i * d + j]) - largest;
        }
        const Lanes range = largest_modulus(k, d * d);
        for (int i = 0; i < d * d; i++) k[i] = exponential<float>(k[i]);
        return range;
    }

    static inline void iterate(int d, const Lanes *k, const Lanes *v, Lanes *u, Lanes *next) {
        for (int i = 0; i < d; i++) {
            Lanes sum{};
            for (int j = 0; j < d; j++) sum += k[i * d + j] * v[j];
            u[i] = 1.f / sum;
        }
        for (int j = 0; j < d; j++) {
            Lanes sum{};
            for (int i = 0; i < d; i++) sum += k[i * d + j] * u[i];
            next[j] = 1.f / sum;
        }
    }

    // One of u and v was made of the other one, by rows or columns of K. Passes its gradient `from`, which is used up, to
    // that of the other one, both at logarithms.
    template <bool ROWS>
    static inline void reverse(int d, const Lanes *k, const Lanes *source, const Lanes *made, Lanes *from, Lanes *to,
                               Lanes *taken) {
        for (int one = 0; one < d; one++) from[one] *= made[one];
        for (int other = 0; other < d; other++) {
            Lanes sum{};
            for (int one = 0; one < d; one++) {
                const int place = ROWS ? one * d + other : other * d + one;
                sum += k[place] * from[one];
                taken[place] += source[other] * from[one];
            }
            to[other] -= source[other] * sum;
        }
        for (int one = 0; one < d; one++) from[one] = Lanes{};
    }

    // The same by logarithms.
    template <bool ROWS>
    static void take_shares(int d, const Doubles *z, const Doubles *source, const Doubles *made, Doubles *from, Doubles *to,
                            Doubles *results) {
        for (int one = 0; one < d; one++) {
            for (int other = 0; other < d; other++) {
                const int place = ROWS ? one * d + other : other * d + one;
                const Doubles share = exponential<double>(z[place] + source[other] + made[one]) * from[one];
                results[place] -= share, to[other] -= share;
            }
            from[one] = Doubles{};
        }
    }

    // log of the sum of exp(z_j + v_j), with the z `stride` apart
    static Doubles log_sum(int d, const Doubles *z, int stride, const Doubles *v) {
        Doubles largest = z[0] + v[0], sum{};
        for (int j = 1; j < d; j++) largest = at_least(z[j * stride] + v[j], largest);
        for (int j = 0; j < d; j++) sum += exponential<double>(z[j * stride] + v[j] - largest);
        return largest + logarithm(sum);
    }
};
