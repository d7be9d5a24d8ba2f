// Maps that are computed in double throughout, half a block at a time. Included once for each instruction set, inside its
// namespace.
//
// Such a method is a struct with the functions `scratch` (doubles in lanes that it takes) and `compute`: logits -> matrices, or
// with gradients at the matrices -> gradients at the logits.

template <typename Method> struct InDoubles {
    static int64_t scratch(const Part &part) {
        const int64_t dd = int64_t(part.d) * part.d;
        return part.p + std::max<int64_t>(part.p, dd) + dd + Method::scratch(part);
    }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t lanes, Memory memory) {
        compute(part, logits, nullptr, image, lanes, memory);
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t lanes,
                         Memory memory) {
        compute(part, logits, grad, grad_logits, lanes, memory);
    }

  private:
    static void compute(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *out, uint32_t wanted,
                        Memory memory) {
        const int p = part.p, dd = part.d * part.d;
        Doubles *const z = memory.take<Doubles>(p), *const results = memory.take<Doubles>(std::max(p, dd));
        Doubles *const grads = memory.take<Doubles>(dd);
        for (int half = 0; half < 2; half++) {
            const uint32_t lanes = wanted >> half * HALF & ((1u << HALF) - 1);
            if (lanes == 0) continue;
            for (int i = 0; i < p; i++) z[i] = saturated<double>(widened(logits[i], half));
            for (int i = 0; i < dd && grad != nullptr; i++) grads[i] = widened(grad[i], half);
            Method::compute(part, z, grad == nullptr ? nullptr : grads, results, lanes, memory);
            for (int i = 0; i < p && grad != nullptr; i++)
                results[i] = unless_saturated<double>(results[i], widened(logits[i], half));
            merge(out, results, grad == nullptr ? dd : p, half, lanes);
        }
    }
};
