// What the operations work on. All tensors are contiguous; letters as in lanes.h and streams.h.
#pragma once

#include <algorithm>
#include <cstdint>

// Elimination without pivots loses digits with the logits: as their square where none is zero, and as a higher power where
// many are. So a matrix is computed in float lanes, where that is not good enough in double lanes, and where that is not
// in double with pivots. Good enough: the distances of its sums, or in backward of the rows of its rotation, from one are
// within LOOSE, as the root of the sum of their squares.
// Beyond the limits nothing is tried that would hardly succeed.
constexpr float FLOAT_LIMIT = 4.5f, FLOAT_LOOSE = 0x1.4p-18f;  // 40 eps
constexpr float DOUBLE_LIMIT = 128, DOUBLE_LOOSE = 0x1p-26f;   // an eighth of float's eps
constexpr float SATURATION = 1 << 16;                          // a larger logit counts as this one
constexpr int LARGEST = 64;                                    // streams
constexpr int LARGEST_ROTATION = 192;                          // rows of a rotation
constexpr int MOST_PARTS = 64;                                 // of a map, in all

// Ways to make matrices, one a header; forms.py has their names in this order.
enum Kind {
    GO, GO_SQUARE, GO_UNITARY, GO_HOUSEHOLDER, GO_GIVENS, SINKHORN, SINKHORN_LINEAR, SINKHORN_V4, PERMUTATIONS,
    TRANSPORTATION, IDENTITY, ROWS, CIRCULANT, OFF_DIAGONAL, ORTHOGONAL, QUATERNIONS, SPECTRAL_SPHERE, PROJECTION, KRONECKER,
    AVERAGE
};

// A way with its sizes. Parts of a composite follow it, each with its own parts behind it.
struct Part {
    int kind, d;    // how the matrices are made, and their rows
    int number, p;  // expressivity, iterations or parts, as the kind has it; logits, those of its parts among them
    float real;     // added to sums, or a bound, as the kind has it
};

// The part behind this one and all of its own, and about how many numbers are computed for a matrix.
inline const Part *after(const Part *part) {
    const int own = part->kind == KRONECKER || part->kind == AVERAGE ? part->number : 0;
    part++;
    for (int i = 0; i < own; i++) part = after(part);
    return part;
}

inline int64_t work(const Part *part) {
    const int64_t d = part->d, number = part->number;
    switch (part->kind) {
        case GO: case GO_SQUARE: return d * d * number * number;
        case GO_UNITARY: case GO_HOUSEHOLDER: case GO_GIVENS: return 2 * d * d * number * number;
        case SINKHORN: case SINKHORN_LINEAR: case SINKHORN_V4: return d * d * (1 + number / 8);
        case KRONECKER: case AVERAGE: {
            int64_t sum = d * d;
            const Part *own = part + 1;
            for (int i = 0; i < number; i++, own = after(own)) sum += work(own);
            return sum;
        }
        case SPECTRAL_SPHERE: return 2 * d * d;
        case PROJECTION: return 16 * d * d;
        default: return std::max<int64_t>(d * d, part->p);
    }
}

// With `back` set, `matrix` holds the gradient at what it holds after forward, and so do others below.
struct Map {
    const float *logits;  // (count, p)
    float *matrix;        // (count, d, d)
    float *grad_logits;   // (count, p); for backward
    const Part *parts;    // the first is the whole
    int64_t count;
    int back;
};

// The type of the streams' numbers. All other tensors are float.
constexpr int FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2;
constexpr int64_t PIECE = 64;    // tokens that are read or written together; gradients that they share are summed by pieces
constexpr int64_t COLUMNS = 96;  // of W whose gradient is computed together

// In backward `input`, `write` and `mix` hold gradients.
struct Read {
    const void *x;                                       // (tokens, d, c)
    const float *weight, *scale, *bias;                  // (k, d c), (k), (k)
    void *input;                                         // (tokens, c)
    float *write, *mix, *projection, *inverse_rms;       // (tokens, d), (tokens, k - 2d), (tokens, k), (tokens)
    void *grad_x;                                        // as x; for backward
    float *grad_projection, *grad_logits;                // (tokens, k) twice; for backward
    float *grad_weight;                                  // (k, d c), or null; for backward
    const void *grad_later;                              // as x: added to grad_x; or null
    int64_t tokens, c;
    int d, k, element, back;
    float offset, epsilon;
};

// A whole connection: the write of the one before it, where there is one, the read, and the matrices of the mix. The streams
// that are read are `out`, or `x` where nothing is written before. In backward `input`, `write` and `mix` hold gradients.
struct Connect {
    const void *x;                                       // (tokens, d, c)
    const float *before_mix, *before_write;              // (matrices, d, d), (matrices, d); null where nothing is written
    const void *y;                                       // (tokens, c); null as well
    void *out;                                           // (tokens, d, c); null as well
    const float *weight, *scale, *bias;                  // (k, d c), (3), (k); without the first two all tokens are alike
    void *input;                                         // (tokens, c)
    float *write, *mix;                                  // (own, d), (own, d, d): one for each token, or one for all
    float *projection, *inverse_rms;                     // (tokens, k), (tokens); null where they are not kept
    const void *grad_out;                                // as what is read: its gradient from later on; for backward
    void *grad_x;                                        // as x; for backward, as all below
    float *grad_before_mix, *grad_before_write;          // as those
    void *grad_y;                                        // as y
    float *grad_projection;                              // (tokens, k)
    float *grad_weight, *grad_scale, *grad_bias;         // as those
    const Part *parts;                                   // of the map
    int64_t tokens, matrices, own, c;
    int d, k, element, back;
    float offset, epsilon;
};

// Reading with weights that all tokens share. In backward `input` holds the gradient.
struct Sum {
    const void *x;                                       // (tokens, d, c)
    const float *weights;                                // (d)
    void *input, *grad_x;                                // (tokens, c), and as x; for backward
    float *grad_weights;                                 // (d); for backward
    const void *grad_later;                              // as x: added to grad_x; or null
    int64_t tokens, c;
    int d, element, back;
};

// In backward `out` holds the gradient. One mix and one vector of weights for each token, or one for all: `matrices`.
struct Write {
    const void *x;                                       // (tokens, d, c)
    const float *mix, *weights;                          // (matrices, d, d), (matrices, d)
    const void *y;                                       // (tokens, c)
    void *out, *grad_x;                                  // (tokens, d, c), and as x; for backward
    float *grad_mix, *grad_weights;                      // for backward
    void *grad_y;                                        // for backward
    int64_t tokens, matrices, c;
    int d, element, back;
};
