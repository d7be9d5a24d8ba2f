// The go-mHC map for one matrix a SIMD lane. Included once for each instruction set, inside its namespace, with
// GOMHC_VECTOR_BYTES the width of its vectors.
//
//   A = skew(z),   K = (I + A)^{-1},   Q = 2K - I,   B_ij = ||Q_ij||_F^2 / s
//   backward:  G_Q = (2/s) (G_B (x) 1) * Q,   G_A = -2 K^T G_Q K^T,   g_ij = G_A[i,j] - G_A[j,i]
//
// I + A has symmetric part I, so elimination finds no zero pivot, but its error grows with the logits. Each matrix is
// computed as it needs to be (tasks.h), whatever its neighbours are: a block may be computed in several ways, and every
// lane is stored from its own. What float leaves of the sums is then taken out again.
// d = streams, s = expressivity, n = d * s, p = n (n - 1) / 2

constexpr int TILE = 4;  // columns of two rows that are kept in registers
constexpr int BLOCK = GOMHC_VECTOR_BYTES / int(sizeof(float));  // matrices that are looked at together

template <typename T> struct Lane {
    typedef T Vector __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
    static constexpr int COUNT = GOMHC_VECTOR_BYTES / int(sizeof(T));
    typedef float Row __attribute__((vector_size(COUNT * sizeof(float))));
    // A row in memory. Copied by memcpy it would pass in halves, and wait for both where it is read as a whole.
    typedef float Place __attribute__((vector_size(COUNT * sizeof(float)), aligned(sizeof(float)), may_alias));
};

// One step of transposing a square tile: numbers whose place differs in bit H change sides. L = lanes
template <typename V, size_t L, size_t H, size_t... I>
static inline void exchange(V &one, V &two, std::index_sequence<I...>) {
#if __has_builtin(__builtin_shufflevector)
    const V low = __builtin_shufflevector(one, two, int((I & H) ? L + I - H : I)...);
    const V high = __builtin_shufflevector(one, two, int((I & H) ? L + I : I + H)...);
#else  // GCC 11
    typedef int Places __attribute__((vector_size(sizeof(V))));
    const V low = __builtin_shuffle(one, two, Places{int((I & H) ? L + I - H : I)...});
    const V high = __builtin_shuffle(one, two, Places{int((I & H) ? L + I : I + H)...});
#endif
    one = low, two = high;
}

template <typename V, size_t L, size_t H = L / 2> static inline void transpose(V *tile) {
    for (size_t r = 0; r < L; r++)
        if (!(r & H)) exchange<V, L, H>(tile[r], tile[r + H], std::make_index_sequence<L>());
    if constexpr (H > 1) transpose<V, L, H / 2>(tile);
}

// `width` numbers of each of the lanes' rows -> one vector a number. Lanes beyond `count` repeat the last row.
template <typename T> static inline void load(typename Lane<T>::Vector *to, const float *rows, int width, int count) {
    constexpr int L = Lane<T>::COUNT;
    using Row = typename Lane<T>::Row;
    using Place = typename Lane<T>::Place;
    if (width < L) {
        for (int i = 0; i < width; i++)
            for (int lane = 0; lane < L; lane++) to[i][lane] = T(rows[int64_t(std::min(lane, count - 1)) * width + i]);
        return;
    }
    const float *starts[L];
    for (int lane = 0; lane < L; lane++) starts[lane] = rows + int64_t(std::min(lane, count - 1)) * width;
    for (int done = 0; done < width; done += L) {
        const int first = std::min(done, width - L);  // the last tile may overlap the one before
        Row tile[L];
        for (int lane = 0; lane < L; lane++) tile[lane] = *reinterpret_cast<const Place *>(starts[lane] + first);
        transpose<Row, L>(tile);
        for (int i = 0; i < L; i++) to[first + i] = __builtin_convertvector(tile[i], typename Lane<T>::Vector);
    }
}

// The rows of the lanes whose bit is set in `lanes`.
template <typename T> static inline void store(float *rows, const typename Lane<T>::Vector *from, int width, uint32_t lanes) {
    constexpr int L = Lane<T>::COUNT;
    using Row = typename Lane<T>::Row;
    using Place = typename Lane<T>::Place;
    if (width < L) {
        for (int lane = 0; lane < L; lane++)
            if (lanes >> lane & 1)
                for (int i = 0; i < width; i++) rows[int64_t(lane) * width + i] = float(from[i][lane]);
        return;
    }
    for (int done = 0; done < width; done += L) {
        const int first = std::min(done, width - L);
        Row tile[L];
        for (int i = 0; i < L; i++) tile[i] = __builtin_convertvector(from[first + i], Row);
        transpose<Row, L>(tile);
        for (int lane = 0; lane < L; lane++)
            if (lanes >> lane & 1) *reinterpret_cast<Place *>(rows + int64_t(lane) * width + first) = tile[lane];
    }
}

// The inverse of one n x n matrix, in place, by Gauss and Jordan with the largest pivot of each column.
static void invert_with_pivots(double *m, int n) {
    int chosen[LARGEST];
    for (int c = 0; c < n; c++) {
        int best = c;
        for (int i = c + 1; i < n; i++)
            if (std::fabs(m[i * n + c]) > std::fabs(m[best * n + c])) best = i;
        chosen[c] = best;
        if (best != c) std::swap_ranges(m + c * n, m + c * n + n, m + best * n);
        double *const pivot = m + c * n;
        const double inverse = 1 / pivot[c];
        pivot[c] = 1;
        for (int j = 0; j < n; j++) pivot[j] *= inverse;
        for (int i = 0; i < n; i++) {
            if (i == c) continue;
            double *const row = m + i * n;
            const double factor = row[c];
            row[c] = 0;
            for (int j = 0; j < n; j++) row[j] -= factor * pivot[j];
        }
    }
    for (int c = n - 1; c >= 0; c--)  // rows were exchanged, so columns of the inverse are
        if (chosen[c] != c)
            for (int i = 0; i < n; i++) std::swap(m[i * n + c], m[i * n + chosen[c]]);
}

// D and S are d and s where they are known when compiling, and 0 where they are not. PIVOTS: for large logits.
template <typename T, int D, int S, bool PIVOTS> struct Rotation {
    using V = typename Lane<T>::Vector;
    const int given_d, given_s;
    V *k, *g, *h;      // n x n each: K, and scratch of backward
    V *logits, *image;  // p and d x d of them, as they come in or go out

    Rotation(int d, int s, V *memory)
        : given_d(d), given_s(s), k(memory), g(k + n() * n()), h(g + n() * n()), logits(h + n() * n()),
          image(logits + n() * n()) {}

    int d() const { return D ? D : given_d; }
    int s() const { return S ? S : given_s; }
    int n() const { return d() * s(); }

    static size_t bytes(int n) { return size_t(5) * n * n * sizeof(V); }

    // K = (I + A)^{-1} by Gauss and Jordan, in place.
    inline void invert() const {
        const int size = n();
        const V *z = logits;
        for (int i = 0; i < size; i++) {
            k[i * size + i] = V{} + T(1);
            for (int j = i + 1; j < size; j++, z++) k[i * size + j] = *z, k[j * size + i] = -*z;
        }
        if constexpr (PIVOTS) {
            invert_lane_by_lane();
        } else {
            for (int c = 0; c + 1 < size; c += 2) eliminate_two(c);
            if (size % 2) eliminate(size - 1);
        }
    }

    inline void invert_lane_by_lane() const {
        const int entries = n() * n();
        double *const m = reinterpret_cast<double *>(g);
        for (int lane = 0; lane < Lane<T>::COUNT; lane++) {
            for (int i = 0; i < entries; i++) m[i] = k[i][lane];
            invert_with_pivots(m, n());
            for (int i = 0; i < entries; i++) k[i][lane] = m[i];
        }
    }

    // Larger logits count as SATURATION; NaN stays NaN.
    inline void saturate() const {
        const V limit = V{} + T(SATURATION);
        for (int i = 0; i < n() * (n() - 1) / 2; i++) {
            logits[i] = logits[i] > limit ? limit : logits[i];
            logits[i] = logits[i] < -limit ? -limit : logits[i];
        }
    }

    // So the gradient of those is zero: `logits` holds gradients now, and `original` the logits.
    inline void stop_saturated(const V *original) const {
        const V limit = V{} + T(SATURATION), zero{};
        for (int i = 0; i < n() * (n() - 1) / 2; i++)
            logits[i] = ((original[i] >= -limit) & (original[i] <= limit)) ? logits[i] : zero;
    }

    // Row c is divided by its pivot, and the others lose their share in it; column c makes room for the inverse's.
    inline void eliminate(int c) const {
        const int size = n();
        V *const pivot = k + c * size;
        const V inverse = T(1) / pivot[c];
        pivot[c] = V{} + T(1);
        for (int j = 0; j < size; j++) pivot[j] *= inverse;
        for (int i = 0; i < size; i++) {
            if (i == c) continue;
            V *const row = k + i * size;
            const V factor = row[c];
            row[c] = V{};
            for (int j = 0; j < size; j++) row[j] -= factor * pivot[j];
        }
    }

    // The same for c and c + 1 at once, whose pivot is a 2 x 2 block: the matrix is read and written half as often.
    inline void eliminate_two(int c) const {
        const int size = n();
        V *const upper = k + c * size, *const lower = upper + size;
        const V pivot_00 = upper[c], pivot_01 = upper[c + 1], pivot_10 = lower[c], pivot_11 = lower[c + 1];
        // One over the determinant of a block with symmetric part at least I, which is never zero.
        const V scale = T(1) / (pivot_00 * pivot_11 - pivot_01 * pivot_10);
        const V inverse_00 = pivot_11 * scale, inverse_01 = -pivot_01 * scale;
        const V inverse_10 = -pivot_10 * scale, inverse_11 = pivot_00 * scale;
        upper[c] = lower[c + 1] = V{} + T(1), upper[c + 1] = lower[c] = V{};
        for (int j = 0; j < size; j++) {
            const V one = upper[j], two = lower[j];
            upper[j] = inverse_00 * one + inverse_01 * two, lower[j] = inverse_10 * one + inverse_11 * two;
        }
        for (int i = 0; i + 1 < size; i += 2)
            if (i != c) subtract<2>(i, c);
        if (size % 2) subtract<1>(size - 1, c);
    }

    // Takes from some rows their share in rows c and c + 1, which are read once for all of them.
    template <int ROWS> inline void subtract(int first, int c) const {
        const int size = n();
        V *const rows = k + first * size;
        const V *const upper = k + c * size, *const lower = upper + size;
        V one[ROWS], two[ROWS];
        for (int i = 0; i < ROWS; i++) {
            V *const row = rows + i * size;
            one[i] = row[c], two[i] = row[c + 1];
            row[c] = row[c + 1] = V{};
        }
        for (int j = 0; j < size; j++) {
            const V u = upper[j], l = lower[j];
            for (int i = 0; i < ROWS; i++) rows[i * size + j] = rows[i * size + j] - one[i] * u - two[i] * l;
        }
    }

    // out = left right
    inline void multiply(V *out, const V *left, const V *right) const {
        const int size = n();
        int from = 0;
        for (; from + TILE <= size; from += TILE) columns<TILE>(out, left, right, from);
        if constexpr (D * S == 0 || D * S % TILE != 0)  // GCC 12 warns of what this loop would do otherwise
            for (; from < size; from++) columns<1>(out, left, right, from);
    }

    // Two rows at a time stay in registers; of an odd number of rows, the last one is computed twice.
    template <int WIDTH> inline void columns(V *out, const V *left, const V *right, int from) const {
        const int size = n();
        for (int i = 0; i < size; i += 2) {
            const int next = std::min(i + 1, size - 1);
            V one[WIDTH] = {}, two[WIDTH] = {};
            for (int c = 0; c < size; c++)
                for (int j = 0; j < WIDTH; j++) {
                    one[j] += left[i * size + c] * right[c * size + from + j];
                    two[j] += left[next * size + c] * right[c * size + from + j];
                }
            for (int j = 0; j < WIDTH; j++) out[i * size + from + j] = one[j], out[next * size + from + j] = two[j];
        }
    }

    // Unrolled below, so that most of its comparisons are decided when compiling.
    inline V rotation(int i, int j) const { return T(2) * k[i * n() + j] - T(i == j ? 1 : 0); }

    // Returns how far sums are from one: the squares of their distances, added up.
    inline V forward() const {
        invert();
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
                    for (int column = j * s; column < j * s + s; column++) {
                        const V q = rotation(row, column);
                        sum += q * q;
                    }
                image[i * d + j] = sum * share;
            }
        V loose{};
        normalize<true>(loose);
        normalize<false>(loose);
        return loose;
    }

    // Sums are 1 + e, with e what arithmetic left of them; times 1 - e they are one.
    template <bool ROWS> inline void normalize(V &loose) const {
        const int d = this->d();
        for (int i = 0; i < d; i++) {
            V sum{};
            for (int j = 0; j < d; j++) sum += image[ROWS ? i * d + j : j * d + i];
            const V left = T(1) - sum;
            loose += left * left;
            for (int j = 0; j < d; j++) image[ROWS ? i * d + j : j * d + i] *= T(1) + left;
        }
    }

    // How far the rows of Q are from unit length: 4 (K K^T - K) on the diagonal, squared and added up.
    inline V looseness() const {
        const int size = n();
        V loose{};
        for (int i = 0; i < size; i++) {
            V sum = -k[i * size + i];
            for (int j = 0; j < size; j++) sum += k[i * size + j] * k[i * size + j];
            loose += T(16) * sum * sum;
        }
        return loose;
    }

    // Returns how far the rows of Q are from unit length.
    inline V backward() const {
        invert();
        const V loose = looseness();
        const int d = this->d(), s = this->s(), size = n();
#pragma GCC unroll 4
        for (int i = 0; i < d; i++)
#pragma GCC unroll 4
            for (int j = 0; j < d; j++) {
                const V grad = image[i * d + j] * (T(2) / T(s));
#pragma GCC unroll 4
                for (int row = i * s; row < i * s + s; row++)
#pragma GCC unroll 4
                    for (int column = j * s; column < j * s + s; column++)
                        g[column * size + row] = grad * rotation(row, column);
            }
        multiply(h, k, g);  // g is G_Q^T, so h = (G_Q K^T)^T,
        multiply(g, h, k);  // and g = (K^T G_Q K^T)^T
        V *z = logits;
        for (int i = 0; i < size; i++)
            for (int j = i + 1; j < size; j++, z++) *z = T(-2) * (g[j * size + i] - g[i * size + j]);
        return loose;
    }
};

// Lanes, as bits, whose value is at most the limit: not those with NaN.
template <typename T> static inline uint32_t at_most(T limit, typename Lane<T>::Vector values) {
    const auto within = values <= limit;  // ones in all bits of a lane, or zeros
    uint64_t words[sizeof(within) / sizeof(uint64_t)], all = ~uint64_t(0);
    std::memcpy(words, &within, sizeof(within));
    for (const uint64_t word : words) all &= word;
    uint32_t lanes = (1u << Lane<T>::COUNT) - 1;
    if (all != ~uint64_t(0))
        for (int lane = 0; lane < Lane<T>::COUNT; lane++) lanes &= ~(uint32_t(within[lane] == 0) << lane);
    return lanes;
}

// Those of the `count` matrices from `start` on whose bit is set in `lanes`. Returns those of them that were good enough,
// and stores no other; with PIVOTS all are.
template <typename T, int D, int S, bool PIVOTS>
static uint32_t run(const Map &task, int64_t start, int count, uint32_t lanes, T limit, void *memory) {
    constexpr int L = Lane<T>::COUNT;
    const Rotation<T, D, S, PIVOTS> matrix(task.d, task.s, static_cast<typename Lane<T>::Vector *>(memory));
    const int p = matrix.n() * (matrix.n() - 1) / 2, dd = task.d * task.d;
    uint32_t good = 0;
    for (int done = 0; done < count; done += L) {
        uint32_t wanted = lanes >> done & ((1u << L) - 1);
        if (wanted == 0) continue;
        const int64_t first = start + done;
        const float *const logits = task.logits + first * p;
        load<T>(matrix.logits, logits, p, count - done);
        if (PIVOTS) matrix.saturate();
        if (!task.back) {
            const auto loose = matrix.forward();
            if (!PIVOTS) wanted &= at_most<T>(limit * limit, loose);
            store<T>(task.matrix + first * dd, matrix.image, dd, wanted);
        } else {
            load<T>(matrix.image, task.matrix + first * dd, dd, count - done);
            const auto loose = matrix.backward();
            if (!PIVOTS) wanted &= at_most<T>(limit * limit, loose);
            if (PIVOTS) {
                load<T>(matrix.h, logits, p, count - done);
                matrix.stop_saturated(matrix.h);
            }
            store<T>(task.grad_logits + first * p, matrix.logits, p, wanted);
        }
        good |= wanted << done;
    }
    return good;
}

// As whole numbers, moduli of floats keep their order, with infinity and NaN above all; and their maximum is vectorised.
static inline bool all_within(float limit, const float *numbers, int64_t count) {
    int32_t largest = 0, highest;
    std::memcpy(&highest, &limit, sizeof(highest));
    for (int64_t i = 0; i < count; i++) {
        int32_t bits;
        std::memcpy(&bits, numbers + i, sizeof(bits));
        largest = std::max(largest, bits & 0x7fffffff);
    }
    return largest <= highest;
}

// Which of `count` matrices have all their logits within the limit, as bits.
static inline uint32_t lanes_within(float limit, const float *logits, int p, int count) {
    if (all_within(limit, logits, int64_t(count) * p)) return (1u << count) - 1;
    uint32_t lanes = 0;
    for (int lane = 0; lane < count; lane++) lanes |= uint32_t(all_within(limit, logits + lane * p, p)) << lane;
    return lanes;
}

template <int D, int S> static void blocks(const Map &task, int64_t first, int64_t last) {
    const int n = task.d * task.s, p = n * (n - 1) / 2;
    const std::unique_ptr<char[]> bytes(new char[Rotation<double, D, S, false>::bytes(n) + 64]);  // a vector would clear it
    void *memory = bytes.get() + (64 - reinterpret_cast<uintptr_t>(bytes.get()) % 64) % 64;
    for (int64_t block = first; block < last; block++) {
        const int64_t start = block * BLOCK;
        const int count = int(std::min<int64_t>(BLOCK, task.count - start));
        const float *const logits = task.logits + start * p;
        uint32_t left = (1u << count) - 1;  // lanes that are still to be computed
        if (const uint32_t small = lanes_within(FLOAT_LIMIT, logits, p, count))
            left &= ~run<float, D, S, false>(task, start, count, small, FLOAT_LOOSE, memory);
        if (left == 0) continue;
        if (const uint32_t medium = left & lanes_within(DOUBLE_LIMIT, logits, p, count))
            left &= ~run<double, D, S, false>(task, start, count, medium, DOUBLE_LOOSE, memory);
        if (left != 0) run<double, 0, 0, true>(task, start, count, left, 0, memory);
    }
}

static void map(const Map &task, int64_t first, int64_t last) {
    static_assert(LARGEST < 100, "a size is two digits of d and two of s");
    switch (100 * task.d + task.s) {
        case 201: return blocks<2, 1>(task, first, last);
        case 202: return blocks<2, 2>(task, first, last);
        case 203: return blocks<2, 3>(task, first, last);
        case 301: return blocks<3, 1>(task, first, last);
        case 302: return blocks<3, 2>(task, first, last);
        case 401: return blocks<4, 1>(task, first, last);
        case 402: return blocks<4, 2>(task, first, last);
        case 403: return blocks<4, 3>(task, first, last);
        case 801: return blocks<8, 1>(task, first, last);
        case 802: return blocks<8, 2>(task, first, last);
        default: return blocks<0, 0>(task, first, last);
    }
}
