// Matrices that are made of those of several parts: Kronecker products and averages. Included once for each instruction
// set, inside its namespace, before map.h, which makes the parts.
//
//   kronecker:  B = U_1 (x) ... (x) U_m;        average:  B = sum_i w_i B_i,  w = softmax of the last m logits
//
// Backward makes the matrices of the parts again, and from them the gradient at each.
// d = streams, m = number of parts

static int64_t scratch_of(const Part *part);
static void image_of(const Part *part, const Lanes *logits, Lanes *image, uint32_t lanes, Memory memory);
static void gradient_of(const Part *part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t lanes,
                        Memory memory);

// The parts of a composite: where their logits begin, and their matrices.
struct Parts {
    const Part *part[MOST_PARTS];
    int logits[MOST_PARTS + 1];
    const Lanes *image[MOST_PARTS];

    Parts(const Part *whole, const Lanes *all_logits, uint32_t lanes, Memory &memory) {
        const Part *next = whole + 1;
        logits[0] = 0;
        for (int i = 0; i < whole->number; i++, next = after(next)) {
            Lanes *const out = memory.take<Lanes>(next->d * next->d);
            part[i] = next, image[i] = out, logits[i + 1] = logits[i] + next->p;
            image_of(next, all_logits + logits[i], out, lanes, memory);
        }
    }

    // What that takes, and the most that one of them takes.
    static int64_t scratch(const Part *whole) {
        int64_t most = 0, numbers = 0;
        const Part *part = whole + 1;
        for (int i = 0; i < whole->number; i++, part = after(part)) {
            most = std::max(most, scratch_of(part));
            numbers += int64_t(part->d) * part->d;
        }
        return numbers + most;
    }
};

struct Kronecker {
    static int64_t scratch(const Part *whole) {
        return Parts::scratch(whole) + 3 * (1 + int64_t(whole->number)) * whole->d * whole->d;
    }

    static void forward(const Part *whole, const Lanes *logits, Lanes *image, uint32_t lanes, Memory memory) {
        const Parts parts(whole, logits, lanes, memory);
        const Lanes one = Lanes{} + 1.f, *product = &one;
        for (int i = 0, size = 1; i < whole->number; i++) {
            const int d = parts.part[i]->d;
            Lanes *const next = i + 1 == whole->number ? image : memory.take<Lanes>(size * size * d * d);
            multiply(product, size, parts.image[i], d, next);
            product = next, size *= d;
        }
        if (whole->number == 0) image[0] = one;
    }

    // The gradient at the product of the first parts gives that at the last of them, and that at the product before it.
    static void backward(const Part *whole, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t lanes,
                         Memory memory) {
        const Parts parts(whole, logits, lanes, memory);
        const Lanes one = Lanes{} + 1.f, *products[MOST_PARTS];
        int sizes[MOST_PARTS];
        for (int i = 0, size = 1; i < whole->number; i++) {
            sizes[i] = size, products[i] = &one;
            if (i > 0) {
                Lanes *const product = memory.take<Lanes>(size * size);
                multiply(products[i - 1], sizes[i - 1], parts.image[i - 1], parts.part[i - 1]->d, product);
                products[i] = product;
            }
            size *= parts.part[i]->d;
        }
        for (int i = whole->number - 1; i >= 0; i--) {
            const int size = sizes[i], d = parts.part[i]->d;
            Lanes *const at_product = memory.take<Lanes>(size * size), *const at_factor = memory.take<Lanes>(d * d);
            divide(products[i], size, parts.image[i], d, grad, at_product, at_factor);
            const int first = parts.logits[i];
            gradient_of(parts.part[i], logits + first, at_factor, grad_logits + first, lanes, memory);
            grad = at_product;
        }
    }

  private:
    static void multiply(const Lanes *left, int size, const Lanes *right, int d, Lanes *out) {
        for (int i = 0; i < size; i++)
            for (int k = 0; k < d; k++)
                for (int j = 0; j < size; j++)
                    for (int l = 0; l < d; l++) *out++ = left[i * size + j] * right[k * d + l];
    }

    static void divide(const Lanes *left, int size, const Lanes *right, int d, const Lanes *grad, Lanes *at_left,
                       Lanes *at_right) {
        for (int i = 0; i < size * size; i++) at_left[i] = Lanes{};
        for (int i = 0; i < d * d; i++) at_right[i] = Lanes{};
        for (int i = 0; i < size; i++)
            for (int k = 0; k < d; k++)
                for (int j = 0; j < size; j++) {
                    Lanes sum{};
                    for (int l = 0; l < d; l++, grad++) {
                        sum += *grad * right[k * d + l];
                        at_right[k * d + l] += *grad * left[i * size + j];
                    }
                    at_left[i * size + j] += sum;
                }
    }
};

struct Average {
    static int64_t scratch(const Part *whole) {
        return Parts::scratch(whole) + 2 * whole->number + int64_t(whole->d) * whole->d;
    }

    static void forward(const Part *whole, const Lanes *logits, Lanes *image, uint32_t lanes, Memory memory) {
        const Parts parts(whole, logits, lanes, memory);
        Lanes *const weights = memory.take<Lanes>(whole->number);
        softmax(logits + parts.logits[whole->number], whole->number, weights);
        for (int i = 0; i < whole->d * whole->d; i++) {
            Lanes sum{};
            for (int term = 0; term < whole->number; term++) sum += weights[term] * parts.image[term][i];
            image[i] = sum;
        }
    }

    static void backward(const Part *whole, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t lanes,
                         Memory memory) {
        const Parts parts(whole, logits, lanes, memory);
        const int terms = whole->number, last = parts.logits[terms], dd = whole->d * whole->d;
        Lanes *const weights = memory.take<Lanes>(terms), *const at_weights = grad_logits + last;
        Lanes *const at_term = memory.take<Lanes>(dd), mean{};
        softmax(logits + last, terms, weights);
        for (int term = 0; term < terms; term++) {
            Lanes sum{};
            for (int i = 0; i < dd; i++) sum += grad[i] * parts.image[term][i], at_term[i] = weights[term] * grad[i];
            at_weights[term] = sum, mean += weights[term] * sum;
            const int first = parts.logits[term];
            gradient_of(parts.part[term], logits + first, at_term, grad_logits + first, lanes, memory);
        }
        for (int term = 0; term < terms; term++) at_weights[term] = weights[term] * (at_weights[term] - mean);
    }
};
