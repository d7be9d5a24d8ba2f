// The doubly stochastic matrix that is closest to Z. Included once for each instruction set, inside its namespace, after
// halves.h.
//
//   B = max(0, Y),   Y_ij = z_ij + u_i + v_j,   where u and v minimise  |B|²/2 - sum u - sum v
//
// Newton's method: with W the ones where Y > 0, and r and c what rows and columns of B lack, a step solves
//   [diag(W 1)  W; W^T  diag(W^T 1)] (du, dv) = (r, c)
// by eliminating du, and goes as far along as the function falls. It ends when the sums are right. The damping makes the
// system definite; what it leaves of an error is removed by a second solution.
// Comparisons are never joined by `&`: GCC 11 cannot choose by that in SSE2's doubles.
// Backward:  G less the W * (a_i + b_j) that has its sums, where W is one. Nothing of the iterations is kept.
// d = streams, p = d²

template <int D> struct Projection {
    static constexpr int MOST_STEPS = 200, MOST_TRIALS = 8;
    static constexpr double DAMPING = 0x1p-26, TOLERANCE = 0x1p-30;

    static int64_t scratch(const Part &part) { return 4 * int64_t(part.d) * part.d + 7 * int64_t(part.d); }

    static void compute(const Part &part, const Doubles *z, const Doubles *grad, Doubles *out, uint32_t lanes, Memory memory) {
        Projection method(D ? D : part.d, memory);
        method.find(z, lanes);
        method.factor();
        if (grad == nullptr) method.matrix(out);
        else method.gradient(grad, out);
    }

  private:
    const int given_d;
    Row<D * D, Doubles> w, y, schur, scaled;  // W, Y, the system in dv, of which the upper half, and W over its row sums
    Row<D, Doubles> u, v, r, c, du, dv, over;  // the last is one over the row sums of W

    Projection(int d, Memory &memory)
        : given_d(d), w(d * d, memory), y(d * d, memory), schur(d * d, memory), scaled(d * d, memory), u(d, memory),
          v(d, memory), r(d, memory), c(d, memory), du(d, memory), dv(d, memory), over(d, memory) {}

    int d() const { return D ? D : given_d; }
    static Doubles modulus(Doubles x) { return x < 0. ? -x : x; }
    static Doubles positive(Doubles x) { return x < 0. ? Doubles{} : x; }  // NaN stays NaN

    // Sets W and Y, and leaves in r and c what the sums lack. Each lane goes on until its own sums are right.
    void find(const Doubles *z, uint32_t lanes) {
        const int d = this->d();
        const Doubles tolerance = start(z);
        Doubles error = lacks(z);
        for (int step = 0; step < MOST_STEPS; step++) {
            const auto wrong = error > tolerance;
            if ((lanes & lanes_where<double>(wrong)) == 0) return;
            factor();
            solve();
            const Doubles before = fall();
            for (int i = 0; i < d; i++) u[i] = wrong ? u[i] + du[i] : u[i], v[i] = wrong ? v[i] + dv[i] : v[i];
            error = lacks(z);
            const auto steep = (wrong ? modulus(fall()) : Doubles{}) > 0.1 * modulus(before);
            const uint32_t too_far = lanes & lanes_where<double>(steep);
            if (too_far == 0) continue;
            const Doubles back = search(before, too_far);
            for (int i = 0; i < d; i++) u[i] = steep ? u[i] + back * du[i] : u[i], v[i] = steep ? v[i] + back * dv[i] : v[i];
            error = lacks(z);
        }
    }

    // How much the function falls along (du, dv) here.
    Doubles fall() const {
        Doubles sum{};
        for (int i = 0; i < d(); i++) sum += r[i] * du[i] + c[i] * dv[i];
        return sum;
    }

    // As if all entries were positive. Returns the error of sums that is left to rounding.
    Doubles start(const Doubles *z) {
        const int d = this->d();
        const double share = 1. / d;
        Doubles mean{}, largest{};
        for (int j = 0; j < d; j++) v[j] = Doubles{};
        for (int i = 0; i < d; i++) {
            u[i] = Doubles{};
            for (int j = 0; j < d; j++) {
                const Doubles entry = z[i * d + j];
                u[i] += entry, v[j] -= entry * share, largest = at_least(modulus(entry), largest);
            }
            mean += u[i] * share;
        }
        for (int i = 0; i < d; i++) u[i] = (mean - u[i] + 1.) * share;
        return TOLERANCE + largest * (d * 0x1p-48);
    }

    Doubles lacks(const Doubles *z) {
        const int d = this->d();
        const Doubles one = Doubles{} + 1., zero{};
        for (int j = 0; j < d; j++) c[j] = one;
        for (int i = 0; i < d; i++) {
            r[i] = one;
            for (int j = 0; j < d; j++) {
                const Doubles entry = z[i * d + j] + (u[i] + v[j]);
                const auto is_positive = entry > 0.;
                y[i * d + j] = entry, w[i * d + j] = is_positive ? one : zero;
                const Doubles share = is_positive ? entry : zero;
                r[i] -= share, c[j] -= share;
            }
        }
        Doubles error{};
        for (int i = 0; i < d; i++) error = at_least(modulus(r[i]), error), error = at_least(modulus(c[i]), error);
        return error;
    }

    // W^T 1 on the diagonal, less W^T W / (W 1); then its upper half as L D L^T has it, with one over the pivots.
    void factor() {
        const int d = this->d();
        for (int j = 0; j < d; j++)
            for (int k = j; k < d; k++) schur[j * d + k] = Doubles{} + (k == j ? DAMPING : 0.);
        for (int i = 0; i < d; i++) {
            Doubles sum = Doubles{} + DAMPING;
            for (int j = 0; j < d; j++) sum += w[i * d + j];
            over[i] = 1. / sum;
            for (int j = 0; j < d; j++) {
                const Doubles share = scaled[i * d + j] = w[i * d + j] * over[i];
                schur[j * d + j] += w[i * d + j];
                for (int k = j; k < d; k++) schur[j * d + k] -= share * w[i * d + k];
            }
        }
        for (int k = 0; k < d; k++) {
            const Doubles inverse = 1. / schur[k * d + k];
            schur[k * d + k] = inverse;
            for (int i = k + 1; i < d; i++) {
                const Doubles share = schur[k * d + i] * inverse;
                for (int j = i; j < d; j++) schur[i * d + j] -= share * schur[k * d + j];
            }
        }
    }

    // (r, c) -> (du, dv)
    void solve() {
        const int d = this->d();
        for (int j = 0; j < d; j++) dv[j] = c[j];
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) dv[j] -= scaled[i * d + j] * r[i];
        for (int k = 0; k < d; k++) {
            const Doubles share = dv[k] * schur[k * d + k];
            for (int i = k + 1; i < d; i++) dv[i] -= schur[k * d + i] * share;
        }
        for (int k = d - 1; k >= 0; k--) {
            Doubles sum = dv[k];
            for (int i = k + 1; i < d; i++) sum -= schur[k * d + i] * dv[i];
            dv[k] = sum * schur[k * d + k];
        }
        for (int i = 0; i < d; i++) {
            Doubles sum = r[i];
            for (int j = 0; j < d; j++) sum -= w[i * d + j] * dv[j];
            du[i] = sum * over[i];
        }
    }

    // How far to go on from a full step, or back: to where the slope is a tenth of what it was. It rises, linear in pieces.
    Doubles search(Doubles before, uint32_t lanes) const {
        const int d = this->d();
        Doubles total{}, low = Doubles{} - 1., high = Doubles{} + HUGE_VAL, length{};
        for (int i = 0; i < d; i++) total += du[i] + dv[i];
        for (int trial = 0; trial < MOST_TRIALS; trial++) {
            Doubles slope = -total, rise{};
            for (int i = 0; i < d; i++)
                for (int j = 0; j < d; j++) {
                    const Doubles along = du[i] + dv[j], entry = y[i * d + j] + length * along;
                    const Doubles share = entry > 0. ? along : Doubles{};
                    slope += entry * share, rise += along * share;
                }
            const auto steep = modulus(slope) > 0.1 * modulus(before);
            if ((lanes & lanes_where<double>(steep)) == 0) break;
            const auto falls = slope < 0.;
            low = falls ? at_least(length, low) : low;
            high = falls ? high : length;
            const Doubles newton = length - slope / rise;
            const Doubles half = (low + high) * 0.5, farther = high > 1e300 ? length * 2. + 1. : half;
            const Doubles middle = falls ? farther : half;
            const Doubles below = newton < high ? newton : middle, next = newton > low ? below : middle;
            length = steep ? next : length;
        }
        return length;
    }

    // Sums are off by the tolerance, and by the rounding of Y where that is large.
    void matrix(Doubles *out) {
        const int d = this->d();
        solve();
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) out[i * d + j] = positive(w[i * d + j] * (y[i * d + j] + (du[i] + dv[j])));
    }

    void gradient(const Doubles *grad, Doubles *out) {
        const int d = this->d();
        for (int i = 0; i < d * d; i++) out[i] = w[i] * grad[i];
        for (int times = 0; times < 2; times++) {
            for (int i = 0; i < d; i++) r[i] = c[i] = Doubles{};
            for (int i = 0; i < d; i++)
                for (int j = 0; j < d; j++) r[i] += out[i * d + j], c[j] += out[i * d + j];
            solve();
            for (int i = 0; i < d; i++)
                for (int j = 0; j < d; j++) out[i * d + j] -= w[i * d + j] * (du[i] + dv[j]);
        }
    }
};
