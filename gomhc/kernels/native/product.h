// Products of the tokens' numbers with a matrix that all tokens share. Included once for each instruction set, inside its
// namespace, after streams.h.
//
//   forward:  y = x W^T        backward:  x += y W
//
// Each number is summed by itself, in an order that depends on the sizes of W alone: not on the other tokens, as in a BLAS,
// nor on the tile that it is computed in. Tiles keep TOKENS x WIDE sums in registers.
// c = numbers of a token, k = rows of W

constexpr int WIDE = 3;
constexpr int TOKENS = GOMHC_VECTOR_BYTES == 64 ? 8 : 4;  // 32 registers with AVX-512, 16 with the others
constexpr int64_t PANEL = 1024;    // numbers of a token that stay in the first cache
constexpr int64_t CACHED = 65536;  // numbers of W that stay in the second

// Memory for `count` vectors.
struct Scratch {
    const std::unique_ptr<char[]> bytes;
    F *const vectors;
    explicit Scratch(size_t count)
        : bytes(new char[count * sizeof(F) + 64]),
          vectors(reinterpret_cast<F *>(bytes.get() + (64 - reinterpret_cast<uintptr_t>(bytes.get()) % 64) % 64)) {}
};

// T tokens times Q rows of W, over `steps` vectors: those of the tokens side by side, those of W from `weight` on.
template <int T, int Q> static inline void dot_tile(const F *packed, const float *weight, int64_t c, int64_t steps, int k, F *sums) {
    F tile[T][Q];
    for (int t = 0; t < T; t++)
        for (int q = 0; q < Q; q++) tile[t][q] = sums[t * k + q];
    for (int64_t step = 0; step < steps; step++, packed += T, weight += L) {
        F weights[Q];
        for (int q = 0; q < Q; q++) weights[q] = load_floats(weight + q * c);
        for (int t = 0; t < T; t++)
            for (int q = 0; q < Q; q++) tile[t][q] += packed[t] * weights[q];
    }
    for (int t = 0; t < T; t++)
        for (int q = 0; q < Q; q++) sums[t * k + q] = tile[t][q];
}

template <int T> static void project_tile(const Product &task, int64_t token, F *packed, F *sums) {
    const int k = task.k;
    const int64_t c = task.c, whole = c / L * L;
    const float *x = task.x + token * c;
    for (int i = 0; i < T * k + L; i++) sums[i] = F{};
    for (int64_t from = 0; from < whole; from += PANEL) {
        const int64_t steps = std::min(whole - from, PANEL) / L;
        for (int64_t step = 0; step < steps; step++)
            for (int t = 0; t < T; t++) packed[step * T + t] = load_floats(x + t * c + from + step * L);
        int row = 0;
        for (; row + WIDE <= k; row += WIDE)
            dot_tile<T, WIDE>(packed, task.weight + row * c + from, c, steps, k, sums + row);
        for (; row < k; row++) dot_tile<T, 1>(packed, task.weight + row * c + from, c, steps, k, sums + row);
    }
    if (whole < c)
        for (int t = 0; t < T; t++) {
            const F numbers = load_some(x + t * c + whole, c - whole);
            for (int row = 0; row < k; row++)
                sums[t * k + row] += numbers * load_some(task.weight + row * c + whole, c - whole);
        }
    float *const y = task.y + token * k;
    for (int done = 0; done < T * k; done += L) {  // lane after lane, L sums at once
        transpose<F, L>(sums + done);
        F sum = sums[done];
        for (int lane = 1; lane < L; lane++) sum += sums[done + lane];
        std::memcpy(y + done, &sum, std::min(L, T * k - done) * sizeof(float));
    }
}

static void project(const Product &task, int64_t first, int64_t last) {
    const Scratch scratch(TOKENS * (PANEL / L + task.k) + L);
    F *const packed = scratch.vectors, *const sums = packed + TOKENS * (PANEL / L);
    int64_t token = first;
    for (; token + TOKENS <= last; token += TOKENS) project_tile<TOKENS>(task, token, packed, sums);
    for (; token < last; token++) project_tile<1>(task, token, packed, sums);
}

// V vectors of T tokens' numbers, from x on; y has the T factors of each row side by side.
template <int T, int V> static inline void spread_tile(const Product &task, float *x, const float *weight, const float *y) {
    const int64_t c = task.c;
    F tile[T][V];
    for (int t = 0; t < T; t++)
        for (int v = 0; v < V; v++) tile[t][v] = load_floats(x + t * c + v * L);
    for (int row = 0; row < task.k; row++, weight += c, y += T) {
        F weights[V];
        for (int v = 0; v < V; v++) weights[v] = load_floats(weight + v * L);
        for (int t = 0; t < T; t++)
            for (int v = 0; v < V; v++) tile[t][v] += y[t] * weights[v];
    }
    for (int t = 0; t < T; t++)
        for (int v = 0; v < V; v++) store_floats(x + t * c + v * L, tile[t][v]);
}

// Numbers `from` to `to` of T tokens, to which y belongs.
template <int T> static void spread_block(const Product &task, int64_t token, int64_t from, int64_t to, const float *y) {
    const int64_t c = task.c;
    float *const x = task.x + token * c;
    int64_t i = from;
    for (; i + WIDE * L <= to; i += WIDE * L) spread_tile<T, WIDE>(task, x + i, task.weight + i, y);
    for (; i + L <= to; i += L) spread_tile<T, 1>(task, x + i, task.weight + i, y);
    for (int t = 0; i < to && t < T; t++) {  // what is left of a vector
        F sum = load_some(x + t * c + i, to - i);
        for (int row = 0; row < task.k; row++) sum += y[row * T + t] * load_some(task.weight + row * c + i, to - i);
        std::memcpy(x + t * c + i, &sum, (to - i) * sizeof(float));
    }
}

static void spread(const Product &task, int64_t first, int64_t last) {
    const int k = task.k;
    const Scratch scratch(((last - first) * k + L - 1) / L);
    float *const packed = reinterpret_cast<float *>(scratch.vectors), *to = packed;
    for (int64_t token = first, tile; token < last; token += tile) {
        tile = token + TOKENS <= last ? TOKENS : 1;
        for (int row = 0; row < k; row++)
            for (int64_t t = 0; t < tile; t++) *to++ = task.y[(token + t) * k + row];
    }
    const int64_t tiles = std::max<int64_t>(1, CACHED / (k * WIDE * L)), width = tiles * WIDE * L;
    for (int64_t from = 0; from < task.c; from += width) {
        const int64_t end = std::min(task.c, from + width);
        const float *y = packed;
        int64_t token = first;
        for (; token + TOKENS <= last; token += TOKENS, y += TOKENS * k) spread_block<TOKENS>(task, token, from, end, y);
        for (; token < last; token++, y += k) spread_block<1>(task, token, from, end, y);
    }
}

static void product(const Product &task, int64_t first, int64_t last) {
    task.back ? spread(task, first, last) : project(task, first, last);
}
