// Sinkhorn's iteration, by factors of rows and columns: in the logarithm, and DeepSeek-V4's form. Included once for each
// instruction set, inside its namespace.
//
//   log:  K = exp(Z);                rows, then columns, S times
//   V4:   K = softmax of rows + e;   columns, then S - 1 times rows and columns;   the result is B^T
//   B_ij = u_i K_ij v_j;   rows:  u_i <- u_i / (u_i sum_j K_ij v_j + e);   columns:  v_j <- v_j / (v_j sum_i K_ij u_i + e)
//
// Rounding does not add up over the iterations: K stays as it is, and is read once in each of them. Backward makes them again,
// keeps u and v of each, and goes through them in reverse. With H = G * B, a and b its row and column sums, and B as a step left
// it, the step back from columns takes B_ij b_j from H, and that from rows B_ij a_i. So K times a sum of products of factors
// is taken in all, which is made at the end.
// In the logarithm, where logits of a row differ by more than RANGE, u and v could leave the range of float: such matrices are
// computed in double, with the logarithms of u and v. With V4's e no u_i v_j is larger than 1 / e.
// d = streams, S = number of iterations, p = d²

template <int D, bool V4> struct Scaling {
    static constexpr float RANGE = 32;

    static int64_t scratch(const Part &part) {
        const int64_t d = part.d;
        return 6 * d * (part.number + 1) + 3 * d * d + 8 * d;  // those of `in_doubles` among them
    }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t lanes, Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const k = memory.take<Lanes>(d * d), *const u = memory.take<Lanes>(d), *const v = memory.take<Lanes>(d);
        const uint32_t wide = lanes & start(part, logits, k, u, v);
        for (int t = 1; t <= part.number; t++) iterate(part, t, k, u, v, memory);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) image[place(d, i, j)] = u[i] * k[i * d + j] * v[j];
        if (!V4 && wide != 0) Scaling<0, false>::in_doubles(part, logits, nullptr, image, wide, memory);
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t lanes,
                         Memory memory) {
        const int d = D ? D : part.d, steps = part.number, stride = steps + 1;
        Lanes *const k = memory.take<Lanes>(d * d), *const u = memory.take<Lanes>(d), *const v = memory.take<Lanes>(d);
        Lanes *const a = memory.take<Lanes>(d), *const b = memory.take<Lanes>(d);
        // Of all iterations, those of a row or a column together
        Lanes *const us = memory.take<Lanes>(d * stride), *const vs = memory.take<Lanes>(d * stride);
        Lanes *const of_rows = memory.take<Lanes>(d * stride), *const of_columns = memory.take<Lanes>(d * stride);
        const uint32_t wide = lanes & start(part, logits, k, u, v);
        for (int i = 0; i < d; i++) us[i * stride] = u[i], vs[i * stride] = v[i], a[i] = b[i] = Lanes{};
        for (int t = 1; t <= steps; t++) {
            iterate(part, t, k, u, v, memory);
            for (int i = 0; i < d; i++) us[i * stride + t] = u[i], vs[i * stride + t] = v[i];
        }
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) {
                const Lanes factor = u[i] * v[j], own = grad[place(d, i, j)] * factor, share = own * k[i * d + j];
                grad_logits[i * d + j] = V4 ? own : share;
                a[i] += share, b[j] += share;
            }
        Row<D> shares(d, memory), sums(d, memory);
        for (int t = steps; t > 0; t--) {
            for (int j = 0; j < d; j++) {
                shares[j] = of_columns[j * stride + t] = vs[j * stride + t] * b[j];
                b[j] = V4 ? b[j] * part.real * vs[j * stride + t] / vs[j * stride + t - 1] : Lanes{};
                sums[j] = Lanes{};
            }
            for (int i = 0; i < d; i++) {
                const Lanes factor = us[i * stride + t];
                Lanes sum{};
                for (int j = 0; j < d; j++) sum += k[i * d + j] * shares[j];
                a[i] -= factor * sum;
                if (skips_rows(t)) {
                    of_rows[i * stride + t] = Lanes{};
                    continue;
                }
                const Lanes share = of_rows[i * stride + t] = factor * a[i];
                for (int j = 0; j < d; j++) sums[j] += k[i * d + j] * share;
                a[i] = V4 ? share * part.real / us[i * stride + t - 1] : Lanes{};
            }
            for (int j = 0; j < d; j++) b[j] -= vs[j * stride + t - 1] * sums[j];
        }
        int i = 0;
        for (; i + 2 <= d; i += 2) take<2>(d, steps, i, k, us, vs, of_rows, of_columns, grad_logits);
        if (i < d) take<1>(d, steps, i, k, us, vs, of_rows, of_columns, grad_logits);
        finish(d, logits, k, grad_logits);
        if (!V4 && wide != 0) Scaling<0, false>::in_doubles(part, logits, grad, grad_logits, wide, memory);
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
    static int place(int d, int i, int j) { return V4 ? j * d + i : i * d + j; }
    static bool skips_rows(int t) { return V4 && t == 1; }

    // Returns the lanes whose factors could leave the range of float.
    static uint32_t start(const Part &part, const Lanes *logits, Lanes *k, Lanes *u, Lanes *v) {
        const int d = D ? D : part.d;
        for (int i = 0; i < d; i++) u[i] = v[i] = Lanes{} + 1.f;
        if constexpr (V4) {
            softmax_of_rows(d, logits, k);
            for (int i = 0; i < d * d; i++) k[i] += part.real;
            return 0;
        } else {
            return ~at_most<float>(RANGE, exponentials(d, logits, k));
        }
    }

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

    static void softmax_of_rows(int d, const Lanes *logits, Lanes *weights) {
        for (int i = 0; i < d; i++) {
            for (int j = 0; j < d; j++) weights[i * d + j] = saturated<float>(logits[i * d + j]);
            softmax(weights + i * d, d, weights + i * d);
        }
    }

    static inline void iterate(const Part &part, int t, const Lanes *k, Lanes *u, Lanes *v, Memory memory) {
        const int d = D ? D : part.d;
        Row<D> sums(d, memory);
        for (int j = 0; j < d; j++) sums[j] = Lanes{};
        for (int i = 0; i < d; i++) {
            if (!skips_rows(t)) {
                Lanes sum{};
                for (int j = 0; j < d; j++) sum += k[i * d + j] * v[j];
                u[i] = V4 ? u[i] / (u[i] * sum + part.real) : 1.f / sum;
            }
            for (int j = 0; j < d; j++) sums[j] += k[i * d + j] * u[i];
        }
        for (int j = 0; j < d; j++) v[j] = V4 ? v[j] / (v[j] * sums[j] + part.real) : 1.f / sums[j];
    }

    // Takes from some rows of the gradient what the steps took.
    template <int ROWS>
    static inline void take(int d, int steps, int first, const Lanes *k, const Lanes *us, const Lanes *vs, const Lanes *of_rows,
                            const Lanes *of_columns, Lanes *gradient) {
        int from = 0;
        for (; from + 4 <= d; from += 4) take_tile<ROWS, 4>(d, steps, first, from, k, us, vs, of_rows, of_columns, gradient);
        if constexpr (D == 0 || D % 4 != 0)
            for (; from < d; from++) take_tile<ROWS, 1>(d, steps, first, from, k, us, vs, of_rows, of_columns, gradient);
    }

    template <int ROWS, int WIDTH>
    static inline void take_tile(int d, int steps, int first, int from, const Lanes *k, const Lanes *us, const Lanes *vs,
                                 const Lanes *of_rows, const Lanes *of_columns, Lanes *gradient) {
        const int stride = steps + 1;
        Lanes taken[ROWS][WIDTH] = {};
        for (int t = 1; t <= steps; t++)
            for (int i = 0; i < ROWS; i++) {
                const Lanes u = us[(first + i) * stride + t], of_row = of_rows[(first + i) * stride + t];
                for (int j = 0; j < WIDTH; j++) {
                    taken[i][j] += u * of_columns[(from + j) * stride + t];
                    taken[i][j] += of_row * vs[(from + j) * stride + t - 1];
                }
            }
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < WIDTH; j++) {
                const int entry = (first + i) * d + from + j;
                gradient[entry] -= V4 ? taken[i][j] : k[entry] * taken[i][j];
            }
    }

    // From the gradient at K, or at its logarithm, to that at the logits; `k` is free.
    static void finish(int d, const Lanes *logits, Lanes *k, Lanes *gradient) {
        if constexpr (V4) {
            softmax_of_rows(d, logits, k);
            for (int i = 0; i < d; i++) softmax_gradient(k + i * d, d, gradient + i * d);
        }
        for (int i = 0; i < d * d; i++) gradient[i] = unless_saturated<float>(gradient[i], logits[i]);
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
