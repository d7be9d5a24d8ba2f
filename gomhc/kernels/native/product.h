// Products of the tokens' numbers with a matrix that all tokens share. Included once for each instruction set, inside its
// namespace, after elements.h.
//
//   project:  y = x W^T        spread:  grad_x = grad_later + weights_j grad + factor x_j + y W, for each stream j
//   weight_gradient:  grad_W = y^T x
//
// Each number is summed by itself, in an order that depends on the sizes of W alone: not on the other tokens, as in a BLAS,
// nor on the tile that it is computed in. Tiles keep TOKENS x WIDE sums in registers. Streams are rounded once.
// E = type of the streams' numbers, d = streams, c = channels, k = rows of W

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
    float *floats() const { return reinterpret_cast<float *>(vectors); }
};

// T tokens times Q rows of W, over `steps` vectors: those of the tokens side by side, those of W from `weight` on.
template <int T, int Q>
static inline void dot_tile(const F *packed, const float *weight, int64_t c, int64_t steps, int k, F *sums, bool is_first) {
    F tile[T][Q];
    for (int t = 0; t < T; t++)
        for (int q = 0; q < Q; q++) tile[t][q] = is_first ? F{} : sums[t * k + q];
    for (int64_t step = 0; step < steps; step++, packed += T, weight += L) {
        F weights[Q];
        for (int q = 0; q < Q; q++) weights[q] = in_register(load_vector(weight + q * c));
        for (int t = 0; t < T; t++) {
            const F numbers = in_register(packed[t]);
            for (int q = 0; q < Q; q++) tile[t][q] += numbers * weights[q];
        }
    }
    for (int t = 0; t < T; t++)
        for (int q = 0; q < Q; q++) sums[t * k + q] = tile[t][q];
}

template <int T, typename E>
static void project_tile(const Read &task, int64_t token, F *packed, F *sums, Ahead &ahead, int64_t tokens) {
    const int k = task.k;
    const int64_t size = task.d * task.c, whole = size / L * L;
    const E *x = static_cast<const E *>(task.x) + token * size;
    for (int i = whole > 0 ? T * k : 0; i < T * k + L; i++) sums[i] = F{};
    for (int64_t from = 0; from < whole; from += PANEL) {
        const int64_t steps = std::min(whole - from, PANEL) / L;
        for (int64_t step = 0; step < steps; step++)
            for (int t = 0; t < T; t++) packed[step * T + t] = load_vector(x + t * size + from + step * L);
        int row = 0;
        for (; row + WIDE <= k; row += WIDE) {
            ahead.bring(T * WIDE * steps * L, tokens * k * size);
            dot_tile<T, WIDE>(packed, task.weight + row * size + from, size, steps, k, sums + row, from == 0);
        }
        for (; row < k; row++)
            dot_tile<T, 1>(packed, task.weight + row * size + from, size, steps, k, sums + row, from == 0);
    }
    if (whole < size)
        for (int t = 0; t < T; t++) {
            const F numbers = load_some(x + t * size + whole, size - whole);
            for (int row = 0; row < k; row++)
                sums[t * k + row] += numbers * load_some(task.weight + row * size + whole, size - whole);
        }
    float *const y = task.projection + token * k;
    for (int done = 0; done < T * k; done += L) {  // lane after lane, L sums at once
        transpose<F, L>(sums + done);
        F sum = sums[done];
        for (int lane = 1; lane < L; lane++) sum += sums[done + lane];
        std::memcpy(y + done, &sum, std::min(L, T * k - done) * sizeof(float));
    }
}

template <typename E> static void project(const Read &task, int64_t first, int64_t last, Ahead ahead) {
    const Scratch scratch(TOKENS * (PANEL / L + task.k) + L);
    F *const packed = scratch.vectors, *const sums = packed + TOKENS * (PANEL / L);
    int64_t token = first;
    for (; token + TOKENS <= last; token += TOKENS) project_tile<TOKENS, E>(task, token, packed, sums, ahead, last - first);
    for (; token < last; token++) project_tile<1, E>(task, token, packed, sums, ahead, last - first);
}

// Some tokens, and what their gradients are made of.
template <typename E> struct Spread {
    const Read &task;
    int64_t first;         // of the tokens
    const float *factors;  // (tokens, d + 1): the weights of the streams, and the factor of x
    const float *y;        // the gradient of the projection, the numbers of a tile's tokens side by side

    // V vectors of T tokens, from channel i of stream j on; `load` and `store` know how much of them there is.
    template <int T, int V, typename Load, typename Store>
    inline void tile(int64_t token, int j, int64_t i, const Load &load, const Store &store) const {
        const int d = task.d;
        const int64_t c = task.c, size = d * c, column = j * c + i;
        const E *x = static_cast<const E *>(task.x) + token * size + column;
        const E *grad = static_cast<const E *>(task.input) + token * c + i;
        const E *later = task.grad_later == nullptr ? nullptr : static_cast<const E *>(task.grad_later) + token * size + column;
        F sums[T][V];
        for (int t = 0; t < T; t++) {
            const float *own = factors + (token - first + t) * (d + 1);
            for (int v = 0; v < V; v++) {
                F sum = later == nullptr ? F{} : load(later + t * size + v * L);
                sum = in_register(sum) + own[d] * load(x + t * size + v * L);
                sums[t][v] = in_register(sum) + own[j] * load(grad + t * c + v * L);
            }
        }
        const float *weight = task.weight + column, *numbers = y + (token - first) * task.k;
        for (int row = 0; row < task.k; row++, weight += size, numbers += T) {
            F weights[V];
            for (int v = 0; v < V; v++) weights[v] = in_register(load(weight + v * L));
            for (int t = 0; t < T; t++) {
                const F number = in_register(in_all_lanes(numbers[t]));
                for (int v = 0; v < V; v++) sums[t][v] += number * weights[v];
            }
        }
        E *const to = static_cast<E *>(task.grad_x) + token * size + column;
        for (int t = 0; t < T; t++)
            for (int v = 0; v < V; v++) store(to + t * size + v * L, sums[t][v]);
    }

    // Channels `from` to `to` of stream j of T tokens.
    template <int T> void block(int64_t token, int j, int64_t from, int64_t to) const {
        const auto load = [](const auto *address) { return load_vector(address); };
        const auto store = [](auto *address, F vector) { store_vector(address, vector); };
        int64_t i = from;
        for (; i + WIDE * L <= to; i += WIDE * L) tile<T, WIDE>(token, j, i, load, store);
        for (; i + 2 * L <= to; i += 2 * L) tile<T, 2>(token, j, i, load, store);
        for (; i + L <= to; i += L) tile<T, 1>(token, j, i, load, store);
        if (i < to)
            tile<T, 1>(
                token, j, i, [=](const auto *address) { return load_some(address, to - i); },
                [=](auto *address, F vector) { store_some(address, vector, to - i); });
    }
};

template <typename E>
static void spread(const Read &task, int64_t first, int64_t last, const float *factors, Ahead ahead) {
    const int k = task.k;
    const Scratch scratch(((last - first) * k + L - 1) / L);
    float *to = scratch.floats();
    for (int64_t token = first, tile; token < last; token += tile) {
        tile = token + TOKENS <= last ? TOKENS : 1;
        for (int row = 0; row < k; row++)
            for (int64_t t = 0; t < tile; t++) *to++ = task.grad_projection[(token + t) * k + row];
    }
    const Spread<E> tokens{task, first, factors, scratch.floats()};
    const int64_t tiles = std::max<int64_t>(1, CACHED / (k * WIDE * L)), width = tiles * WIDE * L;
    for (int j = 0; j < task.d; j++)
        for (int64_t from = 0; from < task.c; from += width) {
            const int64_t end = std::min(task.c, from + width);
            int64_t token = first;
            for (; token + TOKENS <= last; token += TOKENS) {
                ahead.bring(TOKENS * (end - from), (last - first) * task.d * task.c);
                tokens.template block<TOKENS>(token, j, from, end);
            }
            for (; token < last; token++) tokens.template block<1>(token, j, from, end);
        }
}

// R rows and WIDE vectors of columns of the gradient at W, over some tokens, whose numbers are at x and at y.
template <int R> static inline void gradient_tile(const float *x, const float *y, int k, int64_t tokens, float *to, int64_t stride) {
    F sums[R][WIDE];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < WIDE; v++) sums[r][v] = F{};
    for (int64_t token = 0; token < tokens; token++, x += COLUMNS, y += k) {
        F numbers[WIDE];
        for (int v = 0; v < WIDE; v++) numbers[v] = in_register(load_vector(x + v * L));
        for (int r = 0; r < R; r++) {
            const F number = in_register(in_all_lanes(y[r]));
            for (int v = 0; v < WIDE; v++) sums[r][v] += number * numbers[v];
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < WIDE; v++) store_vector(to + r * stride + v * L, load_vector(to + r * stride + v * L) + sums[r][v]);
}

// Columns `first` to `last` of the gradient at W: over PIECE tokens by themselves, and then over the pieces in turn.
template <typename E> static void gradient_columns(const Read &task, int64_t first, int64_t last) {
    const int64_t size = task.d * task.c, width = last - first;
    const int k = task.k;
    const Scratch scratch((PIECE + k) * COLUMNS / L);
    float *const x = scratch.floats(), *const gradient = x + PIECE * COLUMNS;
    std::fill_n(x, (PIECE + k) * COLUMNS, 0.f);
    for (int64_t token = 0; token < task.tokens; token += PIECE) {
        const int64_t tokens = std::min(PIECE, task.tokens - token);
        for (int64_t t = 0; t < tokens; t++) {
            const E *from = static_cast<const E *>(task.x) + (token + t) * size + first;
            const float *const wide = widened(from, width, x + t * COLUMNS);
            if (wide != x + t * COLUMNS) std::copy_n(wide, width, x + t * COLUMNS);
        }
        const float *const y = task.grad_projection + token * k;
        for (int64_t column = 0; column < width; column += WIDE * L) {
            int row = 0;
            float *const to = gradient + column;
            for (; row + 8 <= k; row += 8) gradient_tile<8>(x + column, y + row, k, tokens, to + row * COLUMNS, COLUMNS);
            for (; row + 4 <= k; row += 4) gradient_tile<4>(x + column, y + row, k, tokens, to + row * COLUMNS, COLUMNS);
            for (; row < k; row++) gradient_tile<1>(x + column, y + row, k, tokens, to + row * COLUMNS, COLUMNS);
        }
    }
    for (int row = 0; row < k; row++) std::copy_n(gradient + row * COLUMNS, width, task.grad_weight + row * size + first);
}
