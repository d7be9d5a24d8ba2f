// The streams' numbers in memory, and as vectors of floats. Included once for each instruction set, inside its namespace.
//
// A number is converted when it is loaded and rounded once, to nearest even, when it is stored; NaN stays NaN.

typedef float F __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
typedef uint32_t U __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
typedef uint16_t H __attribute__((vector_size(GOMHC_VECTOR_BYTES / 2)));
constexpr int L = GOMHC_VECTOR_BYTES / int(sizeof(float));

struct BFloat16 {
    uint16_t bits;
};
struct Float16 {
    uint16_t bits;
};

static inline F load_vector(const float *from) {
    F vector;
    std::memcpy(&vector, from, sizeof(F));
    return vector;
}
static inline void store_vector(float *to, F vector) { std::memcpy(to, &vector, sizeof(F)); }

// Whole numbers of 16 bits as those of 32, and the low halves of these. GCC 12 would split AVX-512's vectors in two.
static inline U load_halves(const void *from) {
#if GOMHC_VECTOR_BYTES == 64
    return (U)_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i *>(from)));
#else
    H halves;
    std::memcpy(&halves, from, sizeof(H));
    return __builtin_convertvector(halves, U);
#endif
}
static inline void store_halves(void *to, U words) {
#if GOMHC_VECTOR_BYTES == 64
    _mm256_storeu_si256(static_cast<__m256i *>(to), _mm512_cvtepi32_epi16((__m512i)words));
#else
    const H halves = __builtin_convertvector(words, H);
    std::memcpy(to, &halves, sizeof(H));
#endif
}

static inline F load_vector(const BFloat16 *from) { return (F)(load_halves(from) << 16); }
static inline void store_vector(BFloat16 *to, F vector) {
    const U bits = (U)vector;
    const U rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    store_halves(to, vector == vector ? rounded : quiet);
}

#if GOMHC_VECTOR_BYTES == 64
static inline F load_vector(const Float16 *from) {
    return (F)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}
static inline void store_vector(Float16 *to, F vector) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), _mm512_cvtps_ph((__m512)vector, _MM_FROUND_TO_NEAREST_INT));
}
#elif GOMHC_VECTOR_BYTES == 32
static inline F load_vector(const Float16 *from) {
    return (F)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
}
static inline void store_vector(Float16 *to, F vector) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm256_cvtps_ph((__m256)vector, _MM_FROUND_TO_NEAREST_INT));
}
#else
static inline F load_vector(const Float16 *from) {
    const U wide = load_halves(from), size = (wide & 0x7fff) << 13;
    const F finite = (F)size * 0x1p112f;  // their exponents start at 2^-14, and those of floats at 2^-126
    const U bits = size >= (0x7c00 << 13) ? size | 0x7f800000 : (U)finite;
    return (F)(bits | (wide & 0x8000) << 16);
}
static inline void store_vector(Float16 *to, F vector) {
    const U bits = (U)vector, sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    const U small = (U)((F)size + 0.5f) - 0x3f000000;  // below 2^-14 in units of 2^-24, as the last bit of a half is there
    const U normal = (size - (112 << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    U halves = size < 0x38800000 ? small : normal;
    halves = size >= 0x477ff000 ? U{} + 0x7c00 : halves;  // rounds to more than the largest one
    halves = size > 0x7f800000 ? (size >> 13 & 0x3ff) | 0x7e00 : halves;
    store_halves(to, halves | sign);
}
#endif

// The same number in all lanes.
static inline F in_all_lanes(float number) {
#if GOMHC_VECTOR_BYTES == 64
    return (F)_mm512_set1_ps(number);
#elif GOMHC_VECTOR_BYTES == 32
    return (F)_mm256_set1_ps(number);
#else
    return F{} + number;
#endif
}

// A vector that is in a register at this point, whatever the compiler does around it. It would load one again for each
// product, and loads are what a tile waits for; and of a sum of two products it could round either one.
static inline F in_register(F vector) {
#if GOMHC_VECTOR_BYTES == 64
    asm("" : "+v"(vector));
#elif defined(__x86_64__)
    asm("" : "+x"(vector));
#elif defined(__aarch64__)
    asm("" : "+w"(vector));
#endif
    return vector;
}

// `count` numbers, with zeros behind them.
template <typename E> static inline F load_some(const E *from, int64_t count) {
    E numbers[L]{};
    std::memcpy(numbers, from, count * sizeof(E));
    return load_vector(numbers);
}
template <typename E> static inline void store_some(E *to, F vector, int64_t count) {
    E numbers[L];
    store_vector(numbers, vector);
    std::memcpy(to, numbers, count * sizeof(E));
}

// The numbers as floats: themselves, or copies at `to`.
static inline const float *widened(const float *from, int64_t, float *) { return from; }
template <typename E> static inline const float *widened(const E *from, int64_t size, float *to) {
    int64_t i = 0;
    for (; i + L <= size; i += L) store_vector(to + i, load_vector(from + i));
    if (i < size) store_some(to + i, load_some(from + i, size - i), size - i);
    return to;
}
