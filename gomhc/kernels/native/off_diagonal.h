// The identity plus bounded entries off the diagonal. Included once for each instruction set, inside its namespace.
//
//   B_ii = 1,   B_ij = f tanh(z_ij),   f = bound / (d - 1);     backward:  g_ij = f G_ij (1 - tanh(z_ij)²)
//
// d = streams, p = d (d - 1), row by row

template <int D> struct OffDiagonal {
    static int64_t scratch(const Part &) { return 0; }

    static void forward(const Part &part, const Lanes *logits, Lanes *image, uint32_t, Memory) {
        const int d = D ? D : part.d;
        const float factor = part.real / float(std::max(1, d - 1));
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) image[i * d + j] = i == j ? Lanes{} + 1.f : factor * tangent<float>(*logits++);
    }

    static void backward(const Part &part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t, Memory) {
        const int d = D ? D : part.d;
        const float factor = part.real / float(std::max(1, d - 1));
        for (int i = 0; i < d; i++)
            for (int j = 0; j < d; j++) {
                if (i == j) continue;
                const Lanes value = tangent<float>(*logits++);
                *grad_logits++ = factor * grad[i * d + j] * (1.f - value * value);
            }
    }
};
