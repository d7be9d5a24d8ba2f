// What the operations work on. All tensors are float and contiguous; letters as in lanes.h and streams.h.
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

// Ways to make matrices, one a header; library.py has their names in this order.
enum Kind { GO, GO_SQUARE, GO_UNITARY, SINKHORN, SINKHORN_LINEAR, SINKHORN_V4, PERMUTATIONS, TRANSPORTATION, KRONECKER, AVERAGE };

// A way with its sizes. Parts of a composite follow it, each with its own parts behind it.
struct Part {
    int kind, d;    // how the matrices are made, and their rows
    int number, p;  // expressivity, iterations or parts, as the kind has it; logits, those of its parts among them
    float epsilon;  // added to sums
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
        case GO_UNITARY: return 2 * d * d * number * number;
        case SINKHORN: case SINKHORN_LINEAR: case SINKHORN_V4: return d * d * (1 + number / 8);
        case KRONECKER: case AVERAGE: {
            int64_t sum = d * d;
            const Part *own = part + 1;
            for (int i = 0; i < number; i++, own = after(own)) sum += work(own);
            return sum;
        }
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

// y = x W^T; with `back` set, x += y W.
struct Product {
    float *x;             // (tokens, c)
    const float *weight;  // (k, c)
    float *y;             // (tokens, k)
    int64_t tokens, c;
    int k, back;
};

// In backward `input`, `write` and `mix` hold gradients.
struct Read {
    const float *x, *projection, *scale, *bias;          // (tokens, d, c), (tokens, k), (k), (k)
    float *input, *write, *mix, *inverse_rms;            // (tokens, c), (tokens, d), (tokens, k - 2d), (tokens)
    float *grad_x, *grad_projection, *grad_logits;       // as x, (tokens, k) twice; for backward
    int64_t tokens, c;
    int d, k, back;
    float offset, epsilon;
};

// In backward `out` holds the gradient.
struct Write {
    const float *x, *mix, *weights, *y;                  // (tokens, d, c), (tokens, d, d), (tokens, d), (tokens, c)
    float *out;                                          // (tokens, d, c)
    float *grad_x, *grad_mix, *grad_weights, *grad_y;    // for backward
    int64_t tokens, c;
    int d, back;
};
