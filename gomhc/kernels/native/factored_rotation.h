// The go-mHC map of rotations that are products: of reflections (Householder), or of turns in planes (Givens). Included once
// for each instruction set, inside its namespace, after exponential.h and halves.h.
//
//   householder:  Q = H_1 ... H_{n-1},   H = I - t v v^T,   v = (0, ..., 0, 1, z),   t = 2 / v^T v
//   givens:       Q^T = R_1^T ... R_p^T,   R_k turns rows j and i > j by the angle z_k
//   backward:     S = G_Q Q^T - Q G_Q^T, and from the first factor F to the last: its gradient, and S <- F^T S F
//
// Q stays orthogonal, so S is all that matters of its gradient: that at z is the end of t S v, and that at an angle is S_ji.
// S is skew, and only what is above its diagonal is stored. In the equation of S, Givens has Q^T and its gradient. Products start
// with the last factor, so that the rows and columns of the first ones are still those of the identity; in backward they are
// the first to be done with.
// d = streams, s = expressivity, n = d * s, p = n (n - 1) / 2

template <int N> struct Reflections {
    static constexpr bool TRANSPOSED = false;
    const int given_n;
    Doubles *const t;

    Reflections(int n, Memory &memory) : given_n(n), t(memory.take<Doubles>(n)) {}

    static int64_t scratch(int64_t n) { return 2 * n; }  // t, and w of backward

    int n() const { return N ? N : given_n; }

    void multiply(const Doubles *logits, Doubles *q) const {
        const int n = this->n();
        const Doubles *next = logits + n * (n - 1) / 2;
        q[n * n - 1] = Doubles{} + 1.;
        for (int k = n - 2; k >= 0; k--) {
            next -= n - 1 - k;
            const Doubles *const z = next - (k + 1);  // z[i] belongs to row i > k
            Doubles square = Doubles{} + 1.;
            for (int i = k + 1; i < n; i++) square += z[i] * z[i];
            const Doubles scale = 2. / square;
            t[k] = scale, q[k * n + k] = 1. - scale;
            for (int i = k + 1; i < n; i++) q[i * n + k] = -scale * z[i];
            for (int j = k + 1; j < n; j++) {
                Doubles sum{};
                for (int i = k + 1; i < n; i++) sum += z[i] * q[i * n + j];
                q[k * n + j] = sum *= -scale;
                for (int i = k + 1; i < n; i++) q[i * n + j] += z[i] * sum;
            }
        }
    }

    // H S H = S + v w^T - w v^T with w = t S v
    void gradient(const Doubles *logits, Doubles *s, Doubles *out, Memory memory) const {
        const int n = this->n();
        Row<N, Doubles> w(n, memory);
        for (int k = 0; k + 1 < n; logits += n - 1 - k, out += n - 1 - k, k++) {
            const Doubles *const z = logits - (k + 1);
            for (int i = k + 1; i < n; i++) w[i] = -s[k * n + i];
            for (int i = k + 1; i < n; i++) {
                Doubles sum = w[i];
                for (int j = i + 1; j < n; j++) sum += s[i * n + j] * z[j], w[j] -= s[i * n + j] * z[i];
                out[i - (k + 1)] = w[i] = sum * t[k];
            }
            for (int i = k + 1; i < n; i++)
                for (int j = i + 1; j < n; j++) s[i * n + j] += z[i] * w[j] - w[i] * z[j];
        }
    }
};

// Angles are in the order of i + j. Turns of disjoint planes commute, so Q is the same with all planes of j = 0 first.
template <int N> struct PlaneRotations {
    static constexpr bool TRANSPOSED = true;
    const int given_n;
    Doubles *const turns;  // n x n: sines above the diagonal, cosines below

    PlaneRotations(int n, Memory &memory) : given_n(n), turns(memory.take<Doubles>(n * n)) {}

    static int64_t scratch(int64_t n) { return n * n; }

    int n() const { return N ? N : given_n; }

    void multiply(const Doubles *logits, Doubles *q) const {
        const int n = this->n();
        visit_planes([&](int j, int i) { sine_and_cosine(*logits++, turns[j * n + i], turns[i * n + j]); });
        q[n * n - 1] = Doubles{} + 1.;
        for (int j = n - 2; j >= 0; j--)
            for (int column = j; column < n; column++) {
                Doubles upper = Doubles{} + (column == j ? 1. : 0.);
                for (int i = n - 1; i > j; i--) {
                    const Doubles lower = column == j ? Doubles{} : q[i * n + column];
                    const Doubles sine = turns[j * n + i], cosine = turns[i * n + j];
                    q[i * n + column] = cosine * lower - sine * upper;
                    upper = cosine * upper + sine * lower;
                }
                q[j * n + column] = upper;
            }
    }

    // Gradients take the places of sines that are done with.
    void gradient(const Doubles *, Doubles *s, Doubles *out, Memory) const {
        const int n = this->n();
        for (int j = 0; j < n; j++)
            for (int i = j + 1; i < n; i++) {
                const Doubles sine = turns[j * n + i], cosine = turns[i * n + j];
                turns[j * n + i] = s[j * n + i];
                for (int l = j + 1; l < i; l++) turn(s[l * n + i], s[j * n + l], sine, cosine);
                for (int l = i + 1; l < n; l++) turn(s[j * n + l], s[i * n + l], sine, cosine);
            }
        visit_planes([&](int j, int i) { *out++ = turns[j * n + i]; });
    }

  private:
    static void turn(Doubles &upper, Doubles &lower, Doubles sine, Doubles cosine) {
        const Doubles before = upper;
        upper = cosine * before - sine * lower, lower = sine * before + cosine * lower;
    }

    // In the order of their angles.
    template <typename Visit> void visit_planes(const Visit &visit) const {
        for (int total = 1; total < 2 * n() - 2; total++)
            for (int j = std::max(0, total - n() + 1); j < (total + 1) / 2; j++) visit(j, total - j);
    }
};

// B_ij = ||Q_ij||_F^2 / s
template <template <int> class Factors, int D, int S> struct FactoredGo {
    static int64_t scratch(const Part &part) {
        const int64_t n = part.d * part.number;
        return Factors<D * S>::scratch(n) + 2 * n * n + part.d;
    }

    static void compute(const Part &part, const Doubles *z, const Doubles *grad, Doubles *out, uint32_t, Memory memory) {
        const int d = D ? D : part.d, s = S ? S : part.number, n = d * s;
        const Factors<D * S> factors(n, memory);
        Doubles *const q = memory.take<Doubles>(n * n), *const skew = memory.take<Doubles>(n * n);
        factors.multiply(z, q);
        if (grad == nullptr) return squared_norms(d, s, q, out);
        gradient_on_group(d, s, q, grad, memory.take<Doubles>(d), skew);
        factors.gradient(z, skew, out, memory);
    }

  private:
    static int place(int d, int i, int j) { return Factors<D * S>::TRANSPOSED ? j * d + i : i * d + j; }

    static void squared_norms(int d, int s, const Doubles *q, Doubles *image) {
        const int n = d * s;
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) {
                Doubles sum{};
                for (int row = i * s; row < i * s + s; row++)
                    for (int column = j * s; column < j * s + s; column++) sum += q[row * n + column] * q[row * n + column];
                image[place(d, i, j)] = sum * (1. / s);
            }
    }

    // S of the gradient (2/s) (grad (x) 1) * Q. Rows of one block have one gradient, so there it is zero.
    static void gradient_on_group(int d, int s, const Doubles *q, const Doubles *grad, Doubles *difference, Doubles *skew) {
        const int n = d * s;
        for (int i = 0; i < d; i++)
            for (int j = i; j < d; j++) {
                for (int c = 0; c < d; c++) difference[c] = (grad[place(d, i, c)] - grad[place(d, j, c)]) * (2. / s);
                for (int one = i * s; one < i * s + s; one++)
                    for (int two = j * s; two < j * s + s; two++)
                        skew[one * n + two] = i == j ? Doubles{} : weighted_product(d, s, q + one * n, q + two * n, difference);
            }
    }

    // Of two rows, with a weight for each block of columns.
    static Doubles weighted_product(int d, int s, const Doubles *one, const Doubles *two, const Doubles *weights) {
        Doubles sum{};
        for (int c = 0; c < d; c++, one += s, two += s) {
            Doubles product{};
            for (int i = 0; i < s; i++) product += one[i] * two[i];
            sum += weights[c] * product;
        }
        return sum;
    }
};
