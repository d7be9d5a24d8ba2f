// Rotations themselves: of a skew-symmetric matrix, and of two quaternions. Included once for each instruction set, inside its
// namespace, after rotation.h and halves.h.
//
//   cayley:       Q = 2K - I,  K = (I + A)^{-1};                backward:  G_A = -2 K^T G K^T
//   quaternions:  Q x = a x conj(b),  a, b = q / ||q||,  q = 1 + z;    backward:  g = (G_a - a <a, G_a>) / ||q||
//
// d = streams, n = rows of the rotation, p = n (n - 1) / 2, or 8

// A rotation in double: without pivots, and with them in lanes where that is not good enough (tasks.h).
template <int N> struct Cayley : Rotation<double, N, 1, false, false> {
    Cayley(int n, Memory &memory) : Rotation<double, N, 1, false, false>(n, 1, memory) {}

    static int64_t scratch(int64_t n) { return 3 * n * n; }

    void invert_well(const Doubles *z, uint32_t lanes) const {
        const int n = this->n(), p = n * (n - 1) / 2;
        Doubles largest{};
        for (int i = 0; i < p; i++) largest = at_least(z[i] < 0. ? -z[i] : z[i], largest);
        this->invert(z);
        const uint32_t good = at_most<double>(DOUBLE_LIMIT, largest) &
                              at_most<double>(double(DOUBLE_LOOSE) * DOUBLE_LOOSE, this->looseness());
        for (int lane = 0; lane < HALF; lane++)
            if (lanes & ~good & 1u << lane) invert_lane(z, lane);
    }

  private:
    void invert_lane(const Doubles *z, int lane) const {
        const int n = this->n();
        double *const m = reinterpret_cast<double *>(this->g);
        for (int i = 0; i < n; i++) {
            m[i * n + i] = 1;
            for (int j = i + 1; j < n; j++, z++) m[i * n + j] = (*z)[lane], m[j * n + i] = -(*z)[lane];
        }
        invert_with_pivots(m, n);
        for (int i = 0; i < n * n; i++) this->k[i][lane] = m[i];
    }
};

template <int D> struct CayleyRotation {
    static int64_t scratch(const Part &part) { return Cayley<D>::scratch(part.d); }

    static void compute(const Part &part, const Doubles *z, const Doubles *grad, Doubles *out, uint32_t lanes, Memory memory) {
        const Cayley<D> cayley(part.d, memory);
        const int d = cayley.n();
        cayley.invert_well(z, lanes);
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++)
                if (grad == nullptr) out[i * d + j] = cayley.rotation(i, j);
                else cayley.g[j * d + i] = grad[i * d + j];
        if (grad != nullptr) cayley.gradient(out);
    }
};

struct Quaternions {
    static int64_t scratch(const Part &) { return 0; }

    static void compute(const Part &, const Doubles *z, const Doubles *grad, Doubles *out, uint32_t, Memory) {
        Doubles one[4], two[4], left[16], right[16];
        const Doubles one_over = normalized(z, one), two_over = normalized(z + 4, two);
        product<false>(one, left), product<true>(two, right);
        if (grad == nullptr) {
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) {
                    Doubles sum{};
                    for (int k = 0; k < 4; k++) sum += left[i * 4 + k] * right[j * 4 + k];
                    out[i * 4 + j] = sum;
                }
            return;
        }
        Doubles at_left[16], at_right[16];
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                Doubles of_left{}, of_right{};
                for (int k = 0; k < 4; k++) of_left += grad[i * 4 + k] * right[k * 4 + j], of_right += grad[k * 4 + i] * left[k * 4 + j];
                at_left[i * 4 + j] = of_left, at_right[i * 4 + j] = of_right;
            }
        gradient<false>(at_left, one, one_over, out), gradient<true>(at_right, two, two_over, out + 4);
    }

  private:
    // Which entry of q stands at (i, j) of the matrix of x -> q x, or x -> x q: that of i xor j, with this sign.
    template <bool RIGHT> static bool negative(int i, int j) {
        constexpr bool LEFT_SIGNS[] = {0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0};
        constexpr bool RIGHT_SIGNS[] = {0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0};
        return RIGHT ? RIGHT_SIGNS[i * 4 + j] : LEFT_SIGNS[i * 4 + j];
    }

    // Returns one over the norm.
    static Doubles normalized(const Doubles *z, Doubles *q) {
        Doubles square{}, over;
        for (int i = 0; i < 4; i++) q[i] = z[i] + (i == 0 ? 1. : 0.), square += q[i] * q[i];
        for (int lane = 0; lane < HALF; lane++) over[lane] = 1 / std::sqrt(square[lane]);
        for (int i = 0; i < 4; i++) q[i] *= over;
        return over;
    }

    template <bool RIGHT> static void product(const Doubles *q, Doubles *matrix) {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) matrix[i * 4 + j] = negative<RIGHT>(i, j) ? -q[i ^ j] : q[i ^ j];
    }

    template <bool RIGHT> static void gradient(const Doubles *at_matrix, const Doubles *q, Doubles over, Doubles *out) {
        Doubles mean{};
        for (int k = 0; k < 4; k++) out[k] = Doubles{};
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) out[i ^ j] += negative<RIGHT>(i, j) ? -at_matrix[i * 4 + j] : at_matrix[i * 4 + j];
        for (int k = 0; k < 4; k++) mean += q[k] * out[k];
        for (int k = 0; k < 4; k++) out[k] = (out[k] - mean * q[k]) * over;
    }
};
