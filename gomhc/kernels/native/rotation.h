// The go-mHC map: blockwise squared norms of a rotation, or of a unitary matrix. Included once for each instruction set,
// inside its namespace, after lanes.h.
//
//   A = skew(z),   K = (I + A)^{-1},   Q = 2K - I,   B_ij = ||Q_ij||_F^2 / s
//   backward:  G_Q = (2/s) (G_B (x) 1) * Q,   G_A = -2 K^* G_Q K^*,   g_ij = G_A[i,j] - G_A[j,i]
//
// I + A has Hermitian part I, so elimination finds no zero pivot, but its error grows with the logits. Each matrix is
// computed as it needs to be (tasks.h), whatever its neighbours are: a block may be computed in several ways, and every
// lane is taken from its own. What float leaves of the sums is then taken out again.
// d = streams, s = expressivity, n = d * s, p = n (n - 1) / 2; n² for A = Z - Z^T, and for A = X + iY of a unitary matrix

template <typename V> struct Complex {
    V re, im;
    Complex operator-() const { return {-re, -im}; }
    Complex operator+(const Complex &o) const { return {re + o.re, im + o.im}; }
    Complex operator-(const Complex &o) const { return {re - o.re, im - o.im}; }
    Complex operator*(const Complex &o) const { return {re * o.re - im * o.im, re * o.im + im * o.re}; }
};

// In this order each product is fused with a sum.
template <typename V> static inline void add_product(V &sum, V a, V b) { sum += a * b; }
template <typename V> static inline void add_product(Complex<V> &sum, const Complex<V> &a, const Complex<V> &b) {
    sum.re = sum.re + a.re * b.re, sum.im = sum.im + a.re * b.im;
    sum.re = sum.re - a.im * b.im, sum.im = sum.im + a.im * b.re;
}
template <typename V> static inline V less_products(V row, V a, V b, V c, V d) { return row - a * b - c * d; }
template <typename V>
static inline Complex<V> less_products(Complex<V> row, Complex<V> a, Complex<V> b, Complex<V> c, Complex<V> d) {
    add_product(row, -a, b), add_product(row, -c, d);
    return row;
}

// The inverse of one n x n matrix, in place, by Gauss and Jordan with the largest pivot of each column.
template <typename Number> static void invert_with_pivots(Number *m, int n) {
    int chosen[LARGEST_ROTATION];
    for (int c = 0; c < n; c++) {
        int best = c;
        for (int i = c + 1; i < n; i++)
            if (std::abs(m[i * n + c]) > std::abs(m[best * n + c])) best = i;
        chosen[c] = best;
        if (best != c) std::swap_ranges(m + c * n, m + c * n + n, m + best * n);
        Number *const pivot = m + c * n;
        const Number inverse = 1. / pivot[c];
        pivot[c] = 1;
        for (int j = 0; j < n; j++) pivot[j] *= inverse;
        for (int i = 0; i < n; i++) {
            if (i == c) continue;
            Number *const row = m + i * n;
            const Number factor = row[c];
            row[c] = 0;
            for (int j = 0; j < n; j++) row[j] -= factor * pivot[j];
        }
    }
    for (int c = n - 1; c >= 0; c--)  // rows were exchanged, so columns of the inverse are
        if (chosen[c] != c)
            for (int i = 0; i < n; i++) std::swap(m[i * n + c], m[i * n + chosen[c]]);
}

// D and S are d and s where they are known when compiling, and 0 where they are not. PIVOTS: for large logits.
template <typename T, int D, int S, bool UNITARY, bool PIVOTS> struct Rotation {
    using V = typename Lane<T>::Vector;
    using E = std::conditional_t<UNITARY, Complex<V>, V>;
    static constexpr bool ALL_GOOD = PIVOTS;
    static constexpr int TILE = UNITARY ? 2 : 4;  // columns of two rows that are kept in registers
    // From LARGE rows on, matrices leave the second cache, and each number that comes is used more often: DEPTH columns are
    // eliminated at once, and products take PANEL rows of the right matrix at a time.
    static constexpr int LARGE = 64, DEPTH = 4, PANEL = 32;
    const int given_d, given_s;
    E *k, *g, *h;  // n x n each: K, and scratch of backward

    Rotation(int d, int s, Memory &memory)
        : given_d(d), given_s(s), k(memory.take<E>(n() * n())), g(memory.take<E>(n() * n())),
          h(memory.take<E>(n() * n())) {}

    int d() const { return D ? D : given_d; }
    int s() const { return S ? S : given_s; }
    int n() const { return d() * s(); }

    static E one() {
        if constexpr (UNITARY) return {V{} + T(1), V{}};
        else return V{} + T(1);
    }
    static E reciprocal(E entry) {
        if constexpr (UNITARY) {
            const V scale = T(1) / (entry.re * entry.re + entry.im * entry.im);
            return {entry.re * scale, -entry.im * scale};
        } else {
            return T(1) / entry;
        }
    }
    static V squared(E entry) {
        if constexpr (UNITARY) return entry.re * entry.re + entry.im * entry.im;
        else return entry * entry;
    }

    // K = (I + A)^{-1} by Gauss and Jordan, in place.
    inline void invert(const V *z) const {
        const int size = n();
        for (int i = 0; i < size; i++) {
            if constexpr (UNITARY) {
                for (int j = i + 1; j < size; j++, z++) k[i * size + j].re = *z, k[j * size + i].re = -*z;
            } else {
                k[i * size + i] = V{} + T(1);
                for (int j = i + 1; j < size; j++, z++) k[i * size + j] = *z, k[j * size + i] = -*z;
            }
        }
        if constexpr (UNITARY)
            for (int i = 0; i < size; i++) {
                k[i * size + i] = {V{} + T(1), *z++};
                for (int j = i + 1; j < size; j++, z++) k[i * size + j].im = k[j * size + i].im = *z;
            }
        if constexpr (PIVOTS) {
            invert_lane_by_lane();
        } else {
            int c = 0;
            if constexpr (D * S == 0)
                for (; size >= LARGE && c + DEPTH <= size; c += DEPTH) eliminate_block(c);
            for (; c + 1 < size; c += 2) eliminate_two(c);
            if (size % 2) eliminate(size - 1);
        }
    }

    inline void invert_lane_by_lane() const {
        using Number = std::conditional_t<UNITARY, std::complex<double>, double>;
        const int entries = n() * n();
        Number *const m = reinterpret_cast<Number *>(g);
        for (int lane = 0; lane < Lane<T>::COUNT; lane++)
            if constexpr (UNITARY) {
                for (int i = 0; i < entries; i++) m[i] = {k[i].re[lane], k[i].im[lane]};
                invert_with_pivots(m, n());
                for (int i = 0; i < entries; i++) k[i].re[lane] = m[i].real(), k[i].im[lane] = m[i].imag();
            } else {
                for (int i = 0; i < entries; i++) m[i] = k[i][lane];
                invert_with_pivots(m, n());
                for (int i = 0; i < entries; i++) k[i][lane] = m[i];
            }
    }

    // Row c is divided by its pivot, and the others lose their share in it; column c makes room for the inverse's.
    inline void eliminate(int c) const {
        const int size = n();
        E *const pivot = k + c * size;
        const E inverse = reciprocal(pivot[c]);
        pivot[c] = one();
        for (int j = 0; j < size; j++) pivot[j] = pivot[j] * inverse;
        for (int i = 0; i < size; i++) {
            if (i == c) continue;
            E *const row = k + i * size;
            const E factor = row[c];
            row[c] = E{};
            for (int j = 0; j < size; j++) row[j] = row[j] - factor * pivot[j];
        }
    }

    // The same for c and c + 1 at once, whose pivot is a 2 x 2 block: the matrix is read and written half as often.
    inline void eliminate_two(int c) const {
        const int size = n();
        E *const upper = k + c * size, *const lower = upper + size;
        const E pivot_00 = upper[c], pivot_01 = upper[c + 1], pivot_10 = lower[c], pivot_11 = lower[c + 1];
        // One over the determinant of a block with Hermitian part at least I, which is never zero.
        const E scale = reciprocal(pivot_00 * pivot_11 - pivot_01 * pivot_10);
        const E inverse_00 = pivot_11 * scale, inverse_01 = -pivot_01 * scale;
        const E inverse_10 = -pivot_10 * scale, inverse_11 = pivot_00 * scale;
        upper[c] = lower[c + 1] = one(), upper[c + 1] = lower[c] = E{};
        for (int j = 0; j < size; j++) {
            const E one = upper[j], two = lower[j];
            upper[j] = inverse_00 * one + inverse_01 * two, lower[j] = inverse_10 * one + inverse_11 * two;
        }
        for (int i = 0; i + 1 < size; i += 2)
            if (i != c) subtract<2>(i, c);
        if (size % 2) subtract<1>(size - 1, c);
    }

    // Takes from some rows their share in rows c and c + 1, which are read once for all of them.
    template <int ROWS> inline void subtract(int first, int c) const {
        const int size = n();
        E *const rows = k + first * size;
        const E *const upper = k + c * size, *const lower = upper + size;
        E one[ROWS], two[ROWS];
        for (int i = 0; i < ROWS; i++) {
            E *const row = rows + i * size;
            one[i] = row[c], two[i] = row[c + 1];
            row[c] = row[c + 1] = E{};
        }
        for (int j = 0; j < size; j++) {
            const E u = upper[j], l = lower[j];
            for (int i = 0; i < ROWS; i++) rows[i * size + j] = less_products(rows[i * size + j], one[i], u, two[i], l);
        }
    }

    // The same for DEPTH columns.
    void eliminate_block(int c) const {
        const int size = n();
        E pivot[DEPTH * DEPTH], *const rows = k + c * size;
        for (int i = 0; i < DEPTH; i++)
            for (int j = 0; j < DEPTH; j++) {
                pivot[i * DEPTH + j] = rows[i * size + c + j];
                rows[i * size + c + j] = i == j ? one() : E{};
            }
        for (int p = 0; p < DEPTH; p++) {
            E *const own = pivot + p * DEPTH;
            const E inverse = reciprocal(own[p]);
            own[p] = one();
            for (int j = 0; j < DEPTH; j++) own[j] = own[j] * inverse;
            for (int i = 0; i < DEPTH; i++) {
                if (i == p) continue;
                const E factor = -pivot[i * DEPTH + p];
                pivot[i * DEPTH + p] = E{};
                for (int j = 0; j < DEPTH; j++) add_product(pivot[i * DEPTH + j], factor, own[j]);
            }
        }
        for (int j = 0; j < size; j++) {
            E column[DEPTH];
            for (int i = 0; i < DEPTH; i++) column[i] = rows[i * size + j];
            for (int i = 0; i < DEPTH; i++) {
                E sum{};
                for (int p = 0; p < DEPTH; p++) add_product(sum, pivot[i * DEPTH + p], column[p]);
                rows[i * size + j] = sum;
            }
        }
        int i = 0;
        for (; i + DEPTH <= size; i += DEPTH)
            if (i != c) subtract_block<DEPTH>(i, c);
        for (; i < size; i++) subtract_block<1>(i, c);
    }

    template <int ROWS> inline void subtract_block(int first, int c) const {
        const int size = n();
        E *const rows = k + first * size, factors[ROWS * DEPTH];
        const E *const pivots = k + c * size;
        for (int i = 0; i < ROWS; i++)
            for (int p = 0; p < DEPTH; p++) {
                factors[i * DEPTH + p] = -rows[i * size + c + p];
                rows[i * size + c + p] = E{};
            }
        for (int j = 0; j < size; j++) {
            E column[DEPTH];
            for (int p = 0; p < DEPTH; p++) column[p] = pivots[p * size + j];
            for (int i = 0; i < ROWS; i++) {
                E entry = rows[i * size + j];
                for (int p = 0; p < DEPTH; p++) add_product(entry, factors[i * DEPTH + p], column[p]);
                rows[i * size + j] = entry;
            }
        }
    }

    // out = left right
    inline void multiply(E *out, const E *left, const E *right) const {
        const int size = n();
        int from = 0;
        if constexpr (D * S == 0)
            if (size >= LARGE) return multiply_panels(out, left, right);
        for (; from + TILE <= size; from += TILE) columns<TILE>(out, left, right, from);
        if constexpr (D * S == 0 || D * S % TILE != 0)  // GCC 12 warns of what this loop would do otherwise
            for (; from < size; from++) columns<1>(out, left, right, from);
    }

    // Two rows at a time stay in registers; of an odd number of rows, the last one is computed twice.
    template <int WIDTH> inline void columns(E *out, const E *left, const E *right, int from) const {
        const int size = n();
        for (int i = 0; i < size; i += 2) {
            const int next = std::min(i + 1, size - 1);
            E one[WIDTH] = {}, two[WIDTH] = {};
            for (int c = 0; c < size; c++)
                for (int j = 0; j < WIDTH; j++) {
                    add_product(one[j], left[i * size + c], right[c * size + from + j]);
                    add_product(two[j], left[next * size + c], right[c * size + from + j]);
                }
            for (int j = 0; j < WIDTH; j++) out[i * size + from + j] = one[j], out[next * size + from + j] = two[j];
        }
    }

    // The same sums in the same order, a panel at a time.
    void multiply_panels(E *out, const E *left, const E *right) const {
        const int size = n();
        for (int c = 0; c < size; c += PANEL) {
            const int end = std::min(c + PANEL, size);
            int from = 0;
            for (; from + TILE <= size; from += TILE) add_panel<TILE>(out, left, right, from, c, end);
            for (; from < size; from++) add_panel<1>(out, left, right, from, c, end);
        }
    }

    template <int WIDTH> inline void add_panel(E *out, const E *left, const E *right, int from, int first, int end) const {
        int i = 0;
        for (; i + TILE <= n(); i += TILE) add_tile<TILE, WIDTH>(out, left, right, i, from, first, end);
        for (; i < n(); i++) add_tile<1, WIDTH>(out, left, right, i, from, first, end);
    }

    template <int ROWS, int WIDTH>
    inline void add_tile(E *out, const E *left, const E *right, int row, int from, int first, int end) const {
        const int size = n();
        E tile[ROWS * WIDTH];
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < WIDTH; j++)
                tile[i * WIDTH + j] = first == 0 ? E{} : out[(row + i) * size + from + j];
        for (int c = first; c < end; c++)
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < WIDTH; j++)
                    add_product(tile[i * WIDTH + j], left[(row + i) * size + c], right[c * size + from + j]);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < WIDTH; j++) out[(row + i) * size + from + j] = tile[i * WIDTH + j];
    }

    // Unrolled below, so that most of its comparisons are decided when compiling.
    inline E rotation(int i, int j) const {
        const E &entry = k[i * n() + j];
        if constexpr (UNITARY) return {T(2) * entry.re - T(i == j ? 1 : 0), T(2) * entry.im};
        else return T(2) * entry - T(i == j ? 1 : 0);
    }

    // Returns how far sums are from one: the squares of their distances, added up.
    inline V forward(const V *logits, V *image) const {
        invert(logits);
        const int d = this->d(), s = this->s();
        const T share = T(1) / T(s);
#pragma GCC unroll 4
        for (int i = 0; i < d; i++)
#pragma GCC unroll 4
            for (int j = 0; j < d; j++) {
                V sum{};
#pragma GCC unroll 4
                for (int row = i * s; row < i * s + s; row++)
#pragma GCC unroll 4
                    for (int column = j * s; column < j * s + s; column++) sum += squared(rotation(row, column));
                image[i * d + j] = sum * share;
            }
        V loose{};
        normalize<true>(image, loose);
        normalize<false>(image, loose);
        return loose;
    }

    // Sums are 1 + e, with e what arithmetic left of them; times 1 - e they are one.
    template <bool ROWS> inline void normalize(V *image, V &loose) const {
        const int d = this->d();
        for (int i = 0; i < d; i++) {
            V sum{};
            for (int j = 0; j < d; j++) sum += image[ROWS ? i * d + j : j * d + i];
            const V left = T(1) - sum;
            loose += left * left;
            for (int j = 0; j < d; j++) image[ROWS ? i * d + j : j * d + i] *= T(1) + left;
        }
    }

    // How far the rows of Q are from unit length: 4 (K K^* - K) on the diagonal, squared and added up.
    inline V looseness() const {
        const int size = n();
        V loose{};
        for (int i = 0; i < size; i++) {
            V sum;
            if constexpr (UNITARY) sum = -k[i * size + i].re;
            else sum = -k[i * size + i];
            for (int j = 0; j < size; j++) sum += squared(k[i * size + j]);
            loose += T(16) * sum * sum;
        }
        return loose;
    }

    // Returns how far the rows of Q are from unit length.
    inline V backward(const V *logits, const V *grad_image, V *grad_logits) const {
        invert(logits);
        const V loose = looseness();
        const int d = this->d(), s = this->s(), size = n();
#pragma GCC unroll 4
        for (int i = 0; i < d; i++)
#pragma GCC unroll 4
            for (int j = 0; j < d; j++) {
                const V grad = grad_image[i * d + j] * (T(2) / T(s));
#pragma GCC unroll 4
                for (int row = i * s; row < i * s + s; row++)
#pragma GCC unroll 4
                    for (int column = j * s; column < j * s + s; column++) {
                        const E q = rotation(row, column);
                        if constexpr (UNITARY) g[column * size + row] = {grad * q.re, -grad * q.im};
                        else g[column * size + row] = grad * q;
                    }
            }
        gradient(grad_logits);
        return loose;
    }

    // From the gradient at Q, whose adjoint is in g, to that at the logits.
    inline void gradient(V *grad_logits) const {
        const int size = n();
        multiply(h, k, g);  // h = (G_Q K^*)^*
        multiply(g, h, k);  // g = (K^* G_Q K^*)^*
        V *z = grad_logits;
        if constexpr (UNITARY) {
            for (int i = 0; i < size; i++)
                for (int j = i + 1; j < size; j++, z++) *z = T(-2) * (g[j * size + i].re - g[i * size + j].re);
            for (int i = 0; i < size; i++) {
                *z++ = T(2) * g[i * size + i].im;
                for (int j = i + 1; j < size; j++, z++) *z = T(2) * (g[j * size + i].im + g[i * size + j].im);
            }
        } else {
            for (int i = 0; i < size; i++)
                for (int j = i + 1; j < size; j++, z++) *z = T(-2) * (g[j * size + i] - g[i * size + j]);
        }
    }
};

// The matrices of a block, each in the precision that it needs.
template <int D, int S, bool UNITARY> struct Go {
    static int num_logits(const Part &part) {  // of A: half of those of A = Z - Z^T
        const int n = part.d * part.number;
        return UNITARY ? n * n : n * (n - 1) / 2;
    }

    static int64_t scratch(const Part &part) {
        const int64_t n = part.d * part.number;
        return 3 * n * n * (UNITARY ? 2 : 1) + 4 * num_logits(part) + 3 * part.d * part.d;
    }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t lanes, Memory memory) {
        if (part.kind == GO_SQUARE) logits = triangle(part, logits, memory);
        compute(part, logits, nullptr, image, lanes, memory);
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t lanes,
                         Memory memory) {
        if (part.kind != GO_SQUARE) return compute(part, logits, grad, grad_logits, lanes, memory);
        const int n = part.d * part.number;
        const Lanes *const z = triangle(part, logits, memory);
        Lanes *out = memory.take<Lanes>(num_logits(part));
        compute(part, z, grad, out, lanes, memory);
        for (int i = 0; i < n; i++) {
            grad_logits[i * n + i] = Lanes{};
            for (int j = i + 1; j < n; j++, out++) grad_logits[i * n + j] = *out, grad_logits[j * n + i] = -*out;
        }
    }

  private:
    static const Lanes *triangle(const Part &part, const Lanes *square, Memory &memory) {
        const int n = part.d * part.number;
        Lanes *const out = memory.take<Lanes>(num_logits(part)), *z = out;
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++) *z++ = square[i * n + j] - square[j * n + i];
        return out;
    }

    // The image, or with `grad` the gradient at the logits.
    static void compute(const Part &part, const Lanes *z, const Lanes *grad, Lanes *out, uint32_t lanes, Memory memory) {
        const Lanes largest = largest_modulus(z, num_logits(part));
        uint32_t left = lanes;  // those that are still to be computed
        if (const uint32_t small = left & at_most<float>(FLOAT_LIMIT, largest))
            left &= ~(small & in_floats(part, z, grad, out, memory));
        if (left == 0) return;
        if (const uint32_t medium = left & at_most<float>(DOUBLE_LIMIT, largest))
            left &= ~in_doubles<Rotation<double, D, S, UNITARY, false>>(part, z, grad, out, medium, memory);
        if (left != 0) in_doubles<Rotation<double, 0, 0, UNITARY, true>>(part, z, grad, out, left, memory);
    }

    // These return the lanes that are good enough, and the second one stores no other; with pivots all are.
    static uint32_t in_floats(const Part &part, const Lanes *z, const Lanes *grad, Lanes *out, Memory memory) {
        const Rotation<float, D, S, UNITARY, false> rotation(part.d, part.number, memory);
        const Lanes loose = grad == nullptr ? rotation.forward(z, out) : rotation.backward(z, grad, out);
        return at_most<float>(FLOAT_LOOSE * FLOAT_LOOSE, loose);
    }

    template <typename Matrix>
    static uint32_t in_doubles(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *out, uint32_t wanted,
                               Memory memory) {
        const int p = num_logits(part), dd = part.d * part.d;
        const Matrix rotation(part.d, part.number, memory);
        Doubles *const z = memory.take<Doubles>(p), *const results = memory.take<Doubles>(std::max(p, dd));
        Doubles *const grads = memory.take<Doubles>(dd);
        uint32_t good = 0;
        for (int half = 0; half < 2; half++) {
            uint32_t lanes = wanted >> half * HALF & ((1u << HALF) - 1);
            if (lanes == 0) continue;
            for (int i = 0; i < p; i++) z[i] = saturated<double>(widened(logits[i], half));
            Doubles loose;
            if (grad == nullptr) {
                loose = rotation.forward(z, results);
            } else {
                for (int i = 0; i < dd; i++) grads[i] = widened(grad[i], half);
                loose = rotation.backward(z, grads, results);
                for (int i = 0; i < p; i++) results[i] = unless_saturated<double>(results[i], widened(logits[i], half));
            }
            if (!Matrix::ALL_GOOD) lanes &= at_most<double>(double(DOUBLE_LOOSE) * DOUBLE_LOOSE, loose);
            merge(out, results, grad == nullptr ? dd : p, half, lanes);
            good |= lanes << half * HALF;
        }
        return good;
    }
};
