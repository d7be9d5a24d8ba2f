// The exponential, the hyperbolic tangent, the logarithm, the sine and the cosine of vectors. Included once for each instruction
// set, inside its namespace.
//
// exp: within 2 units in the last place; 0 below the smallest number, and large but finite above the largest; NaN of NaN.
// log: of positive normal numbers, within 4 units in the last place of the larger of it and one.
// x = k log 2 + r with |r| <= log 2 / 2, and a polynomial in r: that of Taylor, cut where it is below rounding.

constexpr double FACTORIALS[] = {1,       1,        2,         6,          24,          120,         720,       5040,
                                 40320.0, 362880.0, 3628800.0, 39916800.0, 479001600.0, 6227020800.0,
                                 87178291200.0, 1307674368000.0, 20922789888000.0};

template <typename T> struct Exponent;  // how a number is made of bits
template <> struct Exponent<float> {
    typedef int32_t Whole;
    static constexpr int MANTISSA = 23, BIAS = 127, DEGREE = 7;
    static constexpr float ROUND = 0x1.8p23f, LOWEST = -104, HIGHEST = 0x1.62e42ep6f;  // 88.72
    static constexpr float LOG2_HIGH = 0x1.62e4p-1f, LOG2_LOW = 0x1.7f7d1cp-20f;       // the first times 2^k is exact
};
template <> struct Exponent<double> {
    typedef int64_t Whole;
    static constexpr int MANTISSA = 52, BIAS = 1023, DEGREE = 13;
    static constexpr double ROUND = 0x1.8p52, LOWEST = -746, HIGHEST = 709.7;
    static constexpr double LOG2_HIGH = 0x1.62e42feep-1, LOG2_LOW = 0x1.a39ef35793c76p-33;
};

template <typename T> static inline typename Lane<T>::Vector exponential(typename Lane<T>::Vector x) {
    using V = typename Lane<T>::Vector;
    using Of = Exponent<T>;
    typedef typename Of::Whole W __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
    const V low = V{} + Of::LOWEST, high = V{} + Of::HIGHEST;
    x = x < low ? low : x;
    x = x > high ? high : x;
    const V rounded = x * T(1.4426950408889634) + Of::ROUND;
    const V whole = rounded - Of::ROUND;
    const V r = (x - whole * Of::LOG2_HIGH) - whole * Of::LOG2_LOW;
    V power = V{} + T(1 / FACTORIALS[Of::DEGREE]);
#pragma GCC unroll 16
    for (int i = Of::DEGREE - 1; i >= 0; i--) power = power * r + T(1 / FACTORIALS[i]);
    // 2^k in two steps: the smallest numbers have no exponent of their own.
    const W k = (W)rounded - (W)(V{} + Of::ROUND), half = k >> 1;
    const V one = (V)((half + Of::BIAS) << Of::MANTISSA), two = (V)((k - half + Of::BIAS) << Of::MANTISSA);
    return power * one * two;
}

// tanh, within 4 units in the last place; NaN of NaN. Of t = exp(-2 |x|) - 1, with what exp adds to one in digits of its own.
template <typename T> static inline typename Lane<T>::Vector tangent(typename Lane<T>::Vector argument) {
    using V = typename Lane<T>::Vector;
    using Of = Exponent<T>;
    typedef typename Of::Whole W __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
    const V limit = V{} + T(-40);  // beyond which tanh is one
    V x = argument < T(0) ? T(2) * argument : T(-2) * argument;
    x = x < limit ? limit : x;
    const V rounded = x * T(1.4426950408889634) + Of::ROUND;
    const V whole = rounded - Of::ROUND;
    const V r = (x - whole * Of::LOG2_HIGH) - whole * Of::LOG2_LOW;
    V series = V{} + T(1 / FACTORIALS[Of::DEGREE]);
#pragma GCC unroll 16
    for (int i = Of::DEGREE - 1; i > 0; i--) series = series * r + T(1 / FACTORIALS[i]);
    const V power = (V)(((W)rounded - (W)(V{} + Of::ROUND) + Of::BIAS) << Of::MANTISSA);
    const V t = series * r * power + (power - T(1)), value = -t / (T(2) + t);
    return argument < T(0) ? -value : value;
}

// m 2^k with m between sqrt(1/2) and sqrt(2), and the series of atanh((m - 1) / (m + 1)).
static inline Doubles logarithm(Doubles x) {
    typedef int64_t W __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
    const W start = W{} + 0x3fe6a09e667f3bcd;  // sqrt(1/2)
    const W k = ((W)x - start) >> 52;
    const Doubles m = (Doubles)((W)x - (k << 52)), s = (m - 1.) / (m + 1.), square = s * s;
    Doubles series{};
#pragma GCC unroll 16
    for (int i = 23; i > 0; i -= 2) series = series * square + 1. / i;
    return __builtin_convertvector(k, Doubles) * 0.6931471805599453 + 2. * s * series;
}

// Within 2 units in the last place, for angles of up to SATURATION; NaN of NaN.
// x = k pi / 2 + r with |r| <= pi / 4. Pi / 2 is in three parts, of which k times the first two are exact.
static inline void sine_and_cosine(Doubles x, Doubles &sine, Doubles &cosine) {
    typedef int64_t W __attribute__((vector_size(GOMHC_VECTOR_BYTES)));
    constexpr double ROUND = Exponent<double>::ROUND;
    const Doubles rounded = x * 0.6366197723675814 + ROUND, whole = rounded - ROUND;
    const Doubles r = x - whole * 0x1.921fb5444p0 - whole * 0x1.68c234c4cp-39 - whole * 0x1.98a2e03707345p-77;
    const Doubles square = r * r;
    Doubles odd = Doubles{} - 1 / FACTORIALS[15], even = Doubles{} + 1 / FACTORIALS[16];
#pragma GCC unroll 8
    for (int i = 13; i > 1; i -= 2) {
        odd = odd * square + (i % 4 == 1 ? 1 : -1) / FACTORIALS[i];
        even = even * square + (i % 4 == 1 ? -1 : 1) / FACTORIALS[i + 1];
    }
    odd = r + r * square * odd, even = 1. - square * .5 + square * square * even;
    const W k = (W)rounded, swapped = (k & 1) != 0;  // its last bits are those of k
    sine = (Doubles)((W)(swapped ? even : odd) ^ (k & 2) << 62);
    cosine = (Doubles)((W)(swapped ? odd : even) ^ ((k + 1) & 2) << 62);
}
