// Entries filled one by one inside the interval that rows and columns still allow. Included once for each instruction set,
// inside its namespace.
//
//   B_ij = low + (high - low) sigmoid(z_ij),    high = max(low, min(r, c_j)),    low = max(0, r - sum_{k>j} c_k)
//
// r is what the row still lacks, c_j what column j lacks; the last row and column take what remains. Backward keeps what the
// columns lacked before each row, and goes through rows and columns in reverse. Where two sides of a minimum or a maximum
// are equal each gets half of the gradient, as in torch.
// d = streams, p = (d - 1)²

template <int D> struct Transportation {
    static int64_t scratch(const Part &part) {
        const int64_t d = part.d;
        return 3 * d * d + 7 * d;
    }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t, Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const columns = memory.take<Lanes>(d), *const later = memory.take<Lanes>(d), *const unused = memory.take<Lanes>(d);
        for (int j = 0; j < d; j++) columns[j] = Lanes{} + 1.f;
        for (int i = 0; i < d - 1; i++) {
            Lanes *const row = image + i * d;
            for (int j = 0; j < d - 1; j++) row[j] = sigmoid(logits[i * (d - 1) + j]);
            fill(d, columns, row, row, later, unused);
            for (int j = 0; j < d; j++) columns[j] = positive(columns[j] - row[j]);
        }
        for (int j = 0; j < d; j++) image[(d - 1) * d + j] = columns[j];
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t,
                         Memory memory) {
        const int d = D ? D : part.d;
        Lanes *const columns = memory.take<Lanes>(d * d), *const rows = memory.take<Lanes>(d * d);
        Lanes *const shares = memory.take<Lanes>(d * d);
        Lanes *const later = memory.take<Lanes>(d), *const lacked = memory.take<Lanes>(d);
        for (int j = 0; j < d; j++) columns[j] = Lanes{} + 1.f;
        for (int i = 0; i < d - 1; i++) {
            for (int j = 0; j < d - 1; j++) shares[i * d + j] = sigmoid(logits[i * (d - 1) + j]);
            fill(d, columns + i * d, shares + i * d, rows + i * d, later, lacked);
            for (int j = 0; j < d; j++) columns[(i + 1) * d + j] = positive(columns[i * d + j] - rows[i * d + j]);
        }
        Lanes *const at_columns = memory.take<Lanes>(d), *const at_later = memory.take<Lanes>(d);
        for (int j = 0; j < d; j++) at_columns[j] = grad[(d - 1) * d + j];  // gradient at what columns lack
        for (int i = d - 2; i >= 0; i--) {
            const Lanes *const c = columns + i * d, *const b = rows + i * d, *const share = shares + i * d;
            fill(d, c, share, rows + i * d, later, lacked);
            for (int j = 0; j < d; j++) at_columns[j] = where_positive(c[j] - b[j], at_columns[j]), at_later[j] = Lanes{};
            Lanes at_lacked = grad[i * d + d - 1] - at_columns[d - 1];  // the last entry is what the row lacks
            for (int j = d - 2; j >= 0; j--) {
                at_lacked = where_positive(lacked[j] - b[j], at_lacked);
                const Lanes at_entry = grad[i * d + j] - at_columns[j] - at_lacked;
                const Lanes low = positive(lacked[j] - later[j + 1]), high = at_most_of(lacked[j], c[j]);
                const Lanes top = at_least(low, high);
                grad_logits[i * (d - 1) + j] = at_entry * (top - low) * share[j] * (1.f - share[j]);
                const Lanes at_top = at_entry * share[j], at_high = of_larger(high, low, at_top);
                const Lanes at_low = at_entry - at_top + (at_top - at_high);
                const Lanes of_row = of_larger(c[j], lacked[j], at_high);
                const Lanes under = where_positive(lacked[j] - later[j + 1], at_low);
                at_columns[j] += at_high - of_row;
                at_lacked += of_row + under;
                at_later[j + 1] -= under;
            }
            Lanes sum{};
            for (int j = 0; j < d; j++) sum += at_later[j], at_columns[j] += sum;  // later_j is a sum from j on
        }
    }

  private:
    static Lanes sigmoid(Lanes x) { return 1.f / (1.f + exponential<float>(-x)); }
    static Lanes positive(Lanes x) { return x > 0.f ? x : x != x ? x : Lanes{}; }
    static Lanes where_positive(Lanes x, Lanes gradient) { return x >= 0.f ? gradient : Lanes{}; }
    static Lanes at_most_of(Lanes one, Lanes two) { return one < two ? one : two; }
    // The share of a gradient that `one` gets of a maximum of both
    static Lanes of_larger(Lanes one, Lanes two, Lanes gradient) {
        return one > two ? gradient : one < two ? Lanes{} : 0.5f * gradient;
    }

    // One row, of which each entry is this share of its interval; what it lacked before each, and what columns lack from
    // each on. `row` may be `share`.
    static inline void fill(int d, const Lanes *columns, const Lanes *share, Lanes *row, Lanes *later, Lanes *lacked) {
        Lanes sum{}, left = Lanes{} + 1.f;
        for (int j = d - 1; j >= 0; j--) later[j] = sum += columns[j];
        for (int j = 0; j < d - 1; j++) {
            const Lanes low = positive(left - later[j + 1]), high = at_least(low, at_most_of(left, columns[j]));
            lacked[j] = left;
            row[j] = low + (high - low) * share[j];
            left = positive(left - row[j]);
        }
        row[d - 1] = left;
    }
};
