// Blocks of small matrices, one a SIMD lane: how they are brought into lanes and back. Included once for each instruction
// set, inside its namespace, with GOMHC_VECTOR_BYTES the width of its vectors.

template <typename T> struct Lane {
    typedef T Vector __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
    static constexpr int COUNT = GOMHC_VECTOR_BYTES / int(sizeof(T));
};

using Lanes = Lane<float>::Vector;    // a number of each of the matrices of a block
using Doubles = Lane<double>::Vector;  // of those of half a block
constexpr int BLOCK = Lane<float>::COUNT, HALF = Lane<double>::COUNT;
// A row in memory. Copied by memcpy it would pass in halves, and wait for both where it is read as a whole.
typedef float Place __attribute__((vector_size(GOMHC_VECTOR_BYTES), aligned(sizeof(float)), may_alias));
typedef int32_t Words __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
typedef float HalfLanes __attribute__((vector_size(GOMHC_VECTOR_BYTES / 2)));
typedef int32_t HalfWords __attribute__((vector_size(GOMHC_VECTOR_BYTES / 2)));

// Memory for vectors. A function that is given one by value gives all back that it takes.
struct Memory {
    char *free;
    template <typename V> V *take(int64_t count) {
        V *const taken = reinterpret_cast<V *>(free);
        free += count * int64_t(sizeof(V));
        return taken;
    }
};

// COUNT vectors that can stay in registers, or `count` in memory where COUNT is 0.
template <int COUNT, typename V = Lanes> struct Row {
    V own[COUNT];
    Row(int, Memory &) {}
    V &operator[](int i) { return own[i]; }
    const V &operator[](int i) const { return own[i]; }
};
template <typename V> struct Row<0, V> {
    V *const own;
    Row(int count, Memory &memory) : own(memory.take<V>(count)) {}
    V &operator[](int i) { return own[i]; }
    const V &operator[](int i) const { return own[i]; }
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

// Not inlined: where it is not called, as nearly always, rows stay in registers.
__attribute__((noinline)) static Lanes load_short(const float *from, int64_t count) {
    Lanes row{};
    std::memcpy(&row, from, count * sizeof(float));
    return row;
}

// `width` numbers of each of `count` rows -> one vector a number. Lanes beyond `count` repeat the last row. A short row comes
// with what follows it in memory, which ends at `end`.
static inline void load(Lanes *to, const float *rows, int width, int count, const float *end) {
    const float *starts[BLOCK];
    for (int lane = 0; lane < BLOCK; lane++) starts[lane] = rows + int64_t(std::min(lane, count - 1)) * width;
    if (width <= BLOCK / 2) {
        for (int i = 0; i < width; i++)
            for (int lane = 0; lane < BLOCK; lane++) to[i][lane] = starts[lane][i];
        return;
    }
    Lanes tile[BLOCK];
    if (width < BLOCK) {
        for (int lane = 0; lane < BLOCK; lane++) {
            const int64_t left = end - starts[lane];
            tile[lane] = left >= BLOCK ? *reinterpret_cast<const Place *>(starts[lane]) : load_short(starts[lane], left);
        }
        transpose<Lanes, BLOCK>(tile);
        for (int i = 0; i < width; i++) to[i] = tile[i];
        return;
    }
    for (int done = 0; done < width; done += BLOCK) {
        const int first = std::min(done, width - BLOCK);  // the last tile may overlap the one before
        for (int lane = 0; lane < BLOCK; lane++) {
            tile[lane] = *reinterpret_cast<const Place *>(starts[lane] + first);
            __builtin_prefetch(starts[lane] + first + BLOCK * width);  // of the next block
        }
        transpose<Lanes, BLOCK>(tile);
        for (int i = 0; i < BLOCK; i++) to[first + i] = tile[i];
    }
}

// Numbers behind a short row are those of rows that are stored after it.
static inline void store(float *rows, const Lanes *from, int width, int count) {
    if (width <= BLOCK / 2) {
        for (int lane = 0; lane < count; lane++)
            for (int i = 0; i < width; i++) rows[int64_t(lane) * width + i] = from[i][lane];
        return;
    }
    Lanes tile[BLOCK];
    if (width < BLOCK) {
        for (int i = 0; i < BLOCK; i++) tile[i] = i < width ? from[i] : Lanes{};
        transpose<Lanes, BLOCK>(tile);
        float *const end = rows + int64_t(count) * width;
        for (int lane = 0; lane < std::min(count, BLOCK); lane++, rows += width)
            if (end - rows >= BLOCK) *reinterpret_cast<Place *>(rows) = tile[lane];
            else std::memcpy(rows, &tile[lane], width * sizeof(float));
        return;
    }
    for (int done = 0; done < width; done += BLOCK) {
        const int first = std::min(done, width - BLOCK);
        for (int i = 0; i < BLOCK; i++) tile[i] = from[first + i];
        transpose<Lanes, BLOCK>(tile);
        for (int lane = 0; lane < count; lane++) *reinterpret_cast<Place *>(rows + int64_t(lane) * width + first) = tile[lane];
    }
}

// Half a block in double, and back: only the lanes whose bit is set in `lanes`, which are those of that half.
static inline Doubles widened(const Lanes &vector, int half) {
    HalfLanes part;
    std::memcpy(&part, reinterpret_cast<const char *>(&vector) + half * sizeof(HalfLanes), sizeof(HalfLanes));
    return __builtin_convertvector(part, Doubles);
}

static inline void merge(Lanes *to, const Doubles *from, int count, int half, uint32_t lanes) {
    HalfWords chosen;
    for (int lane = 0; lane < HALF; lane++) chosen[lane] = -int32_t(lanes >> lane & 1);
    for (int i = 0; i < count; i++) {
        char *const place = reinterpret_cast<char *>(to + i) + half * sizeof(HalfLanes);
        HalfLanes before, after = __builtin_convertvector(from[i], HalfLanes);
        std::memcpy(&before, place, sizeof(before));
        after = chosen ? after : before;
        std::memcpy(place, &after, sizeof(after));
    }
}

// Lanes, as bits, for which a comparison holds.
template <typename T, typename Comparison> static inline uint32_t lanes_where(const Comparison &holds) {
    uint64_t words[sizeof(holds) / sizeof(uint64_t)], all = ~uint64_t(0);  // ones in all bits of a lane, or zeros
    std::memcpy(words, &holds, sizeof(holds));
    for (const uint64_t word : words) all &= word;
    uint32_t lanes = (1u << Lane<T>::COUNT) - 1;
    if (all != ~uint64_t(0))
        for (int lane = 0; lane < Lane<T>::COUNT; lane++) lanes &= ~(uint32_t(holds[lane] == 0) << lane);
    return lanes;
}

// Those whose value is at most the limit: not those with NaN.
template <typename T> static inline uint32_t at_most(T limit, typename Lane<T>::Vector values) {
    return lanes_where<T>(values <= limit);
}

// The largest modulus. As whole numbers, moduli of floats keep their order, with infinity and NaN above all.
static inline Lanes largest_modulus(const Lanes *numbers, int count) {
    Words largest{};
    for (int i = 0; i < count; i++) {
        const Words bits = (Words)numbers[i] & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return (Lanes)largest;
}

template <typename V> static inline V at_least(V one, V two) { return one > two ? one : two; }  // `two` where either is NaN

// Larger logits count as SATURATION; NaN stays NaN.
template <typename T, typename V = typename Lane<T>::Vector> static inline V saturated(V logit) {
    const V limit = V{} + T(SATURATION);
    logit = logit > limit ? limit : logit;
    return logit < -limit ? -limit : logit;
}

// So the gradient of those is zero.
template <typename T, typename V = typename Lane<T>::Vector> static inline V unless_saturated(V gradient, V logit) {
    const V limit = V{} + T(SATURATION), zero{};
    return ((logit >= -limit) & (logit <= limit)) ? gradient : zero;
}
