// The go-mHC map for one matrix a SIMD lane. Included once for each instruction set, inside its namespace, with
// GOMHC_VECTOR_BYTES the width of its vectors.
//
//   A = skew(z),   K = (I + A)^{-1},   Q = 2K - I,   B_ij = ||Q_ij||_F^2 / s
//   backward:  G_Q = (2/s) (G_B (x) 1) * Q,   G_A = -2 K^T G_Q K^T,   g_ij = G_A[i,j] - G_A[j,i]
//
// I + A has symmetric part I, so elimination needs no pivots; but without them its error grows with the square of the
// logits. Lanes are float while every logit of the block is at most FLOAT_LIMIT, and double beyond. What float leaves of
// the sums is then divided out.
// d = streams, s = expressivity, n = d * s, p = n (n - 1) / 2

constexpr int TILE = 8;  // vectors that are kept in registers
constexpr int BLOCK = GOMHC_VECTOR_BYTES / int(sizeof(float));  // matrices that are looked at together

template <typename T> struct Lane {
    typedef T Vector __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
    static constexpr int COUNT = GOMHC_VECTOR_BYTES / int(sizeof(T));
};

// One step of transposing a square tile: numbers whose place differs in bit H change sides. L = lanes
template <typename V, size_t L, size_t H, size_t... I>
static inline void exchange(V &a, V &b, std::index_sequence<I...>) {
    const V low = __builtin_shufflevector(a, b, int((I & H) ? L + I - H : I)...);
    const V high = __builtin_shufflevector(a, b, int((I & H) ? L + I : I + H)...);
    a = low, b = high;
}

template <typename V, size_t L, size_t H = L / 2> static inline void transpose(V *tile) {
    for (size_t r = 0; r < L; r++)
        if (!(r & H)) exchange<V, L, H>(tile[r], tile[r + H], std::make_index_sequence<L>());
    if constexpr (H > 1) transpose<V, L, H / 2>(tile);
}

// `width` numbers of each of the lanes' rows -> one vector a number. Lanes beyond `count` repeat the last row.
template <typename T> static inline void load(typename Lane<T>::Vector *to, const float *rows, int width, int count) {
    constexpr int L = Lane<T>::COUNT;
    typedef float Row __attribute__((vector_size(L * sizeof(float))));
    if (width < L) {
        for (int i = 0; i < width; i++)
            for (int lane = 0; lane < L; lane++) to[i][lane] = T(rows[int64_t(std::min(lane, count - 1)) * width + i]);
        return;
    }
    for (int done = 0; done < width; done += L) {
        const int first = std::min(done, width - L);  // the last tile may overlap the one before
        Row tile[L];
        for (int lane = 0; lane < L; lane++)
            std::memcpy(&tile[lane], rows + int64_t(std::min(lane, count - 1)) * width + first, sizeof(Row));
        transpose<Row, L>(tile);
        for (int i = 0; i < L; i++) to[first + i] = __builtin_convertvector(tile[i], typename Lane<T>::Vector);
    }
}

template <typename T> static inline void store(float *rows, const typename Lane<T>::Vector *from, int width, int count) {
    constexpr int L = Lane<T>::COUNT;
    typedef float Row __attribute__((vector_size(L * sizeof(float))));
    const int lanes = std::min(count, L);
    if (width < L) {
        for (int lane = 0; lane < lanes; lane++)
            for (int i = 0; i < width; i++) rows[int64_t(lane) * width + i] = float(from[i][lane]);
        return;
    }
    for (int done = 0; done < width; done += L) {
        const int first = std::min(done, width - L);
        Row tile[L];
        for (int i = 0; i < L; i++) tile[i] = __builtin_convertvector(from[first + i], Row);
        transpose<Row, L>(tile);
        for (int lane = 0; lane < lanes; lane++)
            std::memcpy(rows + int64_t(lane) * width + first, &tile[lane], sizeof(Row));
    }
}

// N is n where it is known when compiling, and 0 where it is not.
template <typename T, int N> struct Rotation {
    using V = typename Lane<T>::Vector;
    const int n, d, s;
    V *k, *g, *h;      // n x n each: K, and scratch of backward
    V *logits, *image;  // p and d x d of them, as they come in or go out

    Rotation(int d, int s, V *memory)
        : n(N ? N : d * s), d(d), s(s), k(memory), g(k + n * n), h(g + n * n), logits(h + n * n), image(logits + n * n) {}

    static size_t bytes(int n) { return size_t(5) * n * n * sizeof(V); }

    // K = (I + A)^{-1} by Gauss and Jordan, in place.
    inline void invert() const {
        const int size = N ? N : n;
        const V *z = logits;
        for (int i = 0; i < size; i++) {
            k[i * size + i] = V{} + T(1);
            for (int j = i + 1; j < size; j++, z++) k[i * size + j] = *z, k[j * size + i] = -*z;
        }
        int c = 0;
        for (; c + 1 < size; c += 2) eliminate_two(c);
        if (c < size) eliminate(c);
    }

    // Row c becomes that of the inverse of its pivot, and column c that of the others' share in it.
    inline void eliminate(int c) const {
        const int size = N ? N : n;
        const V inverse = T(1) / k[c * size + c];
        for (int j = 0; j < size; j++) k[c * size + j] *= inverse;
        k[c * size + c] = inverse;
        for (int i = 0; i < size; i++) {
            if (i == c) continue;
            const V factor = k[i * size + c];
            k[i * size + c] = V{};
            for (int j = 0; j < size; j++) k[i * size + j] -= factor * k[c * size + j];
        }
    }

    // The same for c and c + 1 at once, which halves how often the matrix is read and written.
    inline void eliminate_two(int c) const {
        const int size = N ? N : n;
        V *const first = k + c * size, *const second = first + size;
        const V a = first[c], b = first[c + 1], e = second[c], f = second[c + 1];
        const V scale = T(1) / (a * f - b * e);  // of a matrix with symmetric part at least I: never zero
        const V fa = f * scale, mb = -b * scale, me = -e * scale, af = a * scale;
        for (int j = 0; j < size; j++) {
            const V one = first[j], two = second[j];
            first[j] = fa * one + mb * two, second[j] = me * one + af * two;
        }
        first[c] = fa, first[c + 1] = mb, second[c] = me, second[c + 1] = af;
        V one[N ? N : LARGEST], two[N ? N : LARGEST];
        for (int i = 0; i < size; i++) {
            one[i] = k[i * size + c], two[i] = k[i * size + c + 1];
            if (i != c && i != c + 1) k[i * size + c] = k[i * size + c + 1] = V{};
        }
        for (int from = 0; from < size; from += TILE / 2) {
            const int width = N && N % (TILE / 2) == 0 ? TILE / 2 : std::min(TILE / 2, size - from);
            V upper[TILE / 2], lower[TILE / 2];
            for (int j = 0; j < width; j++) upper[j] = first[from + j], lower[j] = second[from + j];
            for (int i = 0; i < size; i++) {
                if (i == c || i == c + 1) continue;
                V *const row = k + i * size + from;
                for (int j = 0; j < width; j++) row[j] -= one[i] * upper[j] + two[i] * lower[j];
            }
        }
    }

    // out = left right; as much of a row of `out` as fits stays in registers.
    inline void multiply(V *out, const V *left, const V *right) const {
        const int size = N ? N : n;
        for (int from = 0; from < size; from += TILE)
            for (int i = 0; i < size; i++) {
                V row[TILE] = {};
                const int width = N % TILE == 0 && N ? TILE : std::min(TILE, size - from);
                for (int c = 0; c < size; c++) {
                    const V factor = left[i * size + c];
                    for (int j = 0; j < width; j++) row[j] += factor * right[c * size + from + j];
                }
                for (int j = 0; j < width; j++) out[i * size + from + j] = row[j];
            }
    }

    inline V rotation(int i, int j) const { return T(2) * k[i * (N ? N : n) + j] - T(i == j ? 1 : 0); }

    inline void forward() const {
        invert();
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) {
                V sum{};
                for (int a = i * s; a < i * s + s; a++)
                    for (int b = j * s; b < j * s + s; b++) {
                        const V q = rotation(a, b);
                        sum += q * q;
                    }
                image[i * d + j] = sum / T(s);
            }
        if (sizeof(T) == sizeof(float)) normalize();
    }

    // Sums are off by what float arithmetic left, e; dividing by those of rows and then of columns leaves e squared.
    inline void normalize() const {
        for (int i = 0; i < d; i++) {
            V sum{};
            for (int j = 0; j < d; j++) sum += image[i * d + j];
            const V factor = T(1) / sum;
            for (int j = 0; j < d; j++) image[i * d + j] *= factor;
        }
        for (int j = 0; j < d; j++) {
            V sum{};
            for (int i = 0; i < d; i++) sum += image[i * d + j];
            const V factor = T(1) / sum;
            for (int i = 0; i < d; i++) image[i * d + j] *= factor;
        }
    }

    inline void backward() const {
        invert();
        const int size = N ? N : n;
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) {
                const V grad = image[i * d + j] * (T(2) / T(s));
                for (int a = i * s; a < i * s + s; a++)
                    for (int b = j * s; b < j * s + s; b++) g[b * size + a] = grad * rotation(a, b);
            }
        multiply(h, k, g);  // g is G_Q^T, so h = (G_Q K^T)^T,
        multiply(g, h, k);  // and g = (K^T G_Q K^T)^T
        V *z = logits;
        for (int i = 0; i < size; i++)
            for (int j = i + 1; j < size; j++, z++) *z = T(-2) * (g[j * size + i] - g[i * size + j]);
    }
};

template <typename T, int N> static void run(const Map &task, int64_t start, int count, void *memory) {
    const Rotation<T, N> matrix(task.d, task.s, static_cast<typename Lane<T>::Vector *>(memory));
    const int p = matrix.n * (matrix.n - 1) / 2, dd = task.d * task.d;
    for (int done = 0; done < count; done += Lane<T>::COUNT) {
        const int64_t first = start + done;
        load<T>(matrix.logits, task.logits + first * p, p, count - done);
        if (task.grad == nullptr) {
            matrix.forward();
            store<T>(task.out + first * dd, matrix.image, dd, count - done);
        } else {
            load<T>(matrix.image, task.grad + first * dd, dd, count - done);
            matrix.backward();
            store<T>(task.out + first * p, matrix.logits, p, count - done);
        }
    }
}

// As whole numbers, moduli of floats keep their order, with infinity and NaN above all; and their maximum is vectorised.
static inline bool all_small(const float *numbers, int64_t count) {
    int32_t largest = 0, limit;
    std::memcpy(&limit, &FLOAT_LIMIT, sizeof(limit));
    for (int64_t i = 0; i < count; i++) {
        int32_t bits;
        std::memcpy(&bits, numbers + i, sizeof(bits));
        largest = std::max(largest, bits & 0x7fffffff);
    }
    return largest <= limit;
}

template <int N> static void blocks(const Map &task, int64_t first, int64_t last) {
    const int n = task.d * task.s, p = n * (n - 1) / 2;
    std::vector<char> bytes(Rotation<double, N>::bytes(n) + 64);
    void *memory = bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
    for (int64_t block = first; block < last; block++) {
        const int64_t start = block * BLOCK;
        const int count = int(std::min<int64_t>(BLOCK, task.count - start));
        if (all_small(task.logits + start * p, int64_t(count) * p))
            run<float, N>(task, start, count, memory);
        else
            run<double, N>(task, start, count, memory);
    }
}

static void map(const Map &task, int64_t first, int64_t last) {
    switch (task.d * task.s) {
        case 2: return blocks<2>(task, first, last);
        case 3: return blocks<3>(task, first, last);
        case 4: return blocks<4>(task, first, last);
        case 6: return blocks<6>(task, first, last);
        case 8: return blocks<8>(task, first, last);
        case 12: return blocks<12>(task, first, last);
        case 16: return blocks<16>(task, first, last);
        default: return blocks<0>(task, first, last);
    }
}
