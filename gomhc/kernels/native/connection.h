// A whole connection in one pass over the streams, made of the operations of the chosen instruction set: what one of them
// leaves in the cache, the next one finds there.
//
//   forward:   write of the connection before -> read -> map
//   backward:  map -> read, to which gradients from later on are added -> write of the connection before
//
// Included by kernels.cpp. d = streams, c = channels, k = 2d + p numbers of a token: read, write and mix logits
#pragma once

namespace connection {

// Tokens whose streams stay in the second cache, gradients beside them; whole blocks of the map where a block has 16 lanes.
inline int64_t piece_of(const Connect &task) {
    constexpr int64_t CACHED_NUMBERS = 32768;
    return std::min(PIECE, std::max<int64_t>(16, CACHED_NUMBERS / (task.d * task.c) / 16 * 16));
}

// Where the streams of a token begin, `width` numbers each.
inline const void *at(const Connect &task, const void *tensor, int64_t token, int64_t width) {
    const int64_t bytes = task.element == FLOAT32 ? sizeof(float) : sizeof(uint16_t);
    return tensor == nullptr ? nullptr : static_cast<const char *>(tensor) + token * width * bytes;
}
inline void *at(const Connect &task, void *tensor, int64_t token, int64_t width) {
    return const_cast<void *>(at(task, static_cast<const void *>(tensor), token, width));
}
inline float *at(float *tensor, int64_t token, int64_t width) { return tensor == nullptr ? nullptr : tensor + token * width; }
inline const float *at(const float *tensor, int64_t token, int64_t width) { return tensor + token * width; }

inline bool writes(const Connect &task) { return task.before_mix != nullptr; }  // the others are null where there are no tokens
inline bool is_static(const Connect &task) { return task.weight == nullptr; }
inline void *read_from(const Connect &task) { return writes(task) ? task.out : const_cast<void *>(task.x); }
inline int group(const Connect &task, int i) { return i < task.d ? 0 : i < 2 * task.d ? 1 : 2; }
inline float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// The write before, of some tokens.
inline Write write_of(const Connect &task, int64_t first, int64_t last) {
    const int64_t d = task.d, c = task.c, own = task.matrices == 1 ? 0 : first;
    Write write{};
    write.x = at(task, task.x, first, d * c), write.y = at(task, task.y, first, c);
    write.mix = at(task.before_mix, own, d * d), write.weights = at(task.before_write, own, d);
    write.out = at(task, task.out, first, d * c);
    write.grad_x = at(task, task.grad_x, first, d * c), write.grad_y = at(task, task.grad_y, first, c);
    write.grad_mix = at(task.grad_before_mix, own, d * d), write.grad_weights = at(task.grad_before_write, own, d);
    write.tokens = last - first, write.matrices = task.matrices;  // one, or not: a piece may be a single token
    write.c = c, write.d = task.d, write.element = task.element, write.back = task.back;
    return write;
}

inline Read read_of(const Connect &task, int64_t first, int64_t last) {
    const int64_t d = task.d, c = task.c;
    Read read{};
    read.x = at(task, read_from(task), first, d * c), read.input = at(task, task.input, first, c);
    read.weight = task.weight, read.bias = task.bias, read.write = at(task.write, first, d);
    read.projection = at(task.projection, first, task.k), read.inverse_rms = at(task.inverse_rms, first, 1);
    read.grad_x = at(task, task.grad_x, first, d * c), read.grad_later = at(task, task.grad_out, first, d * c);
    read.grad_projection = at(task.grad_projection, first, task.k), read.grad_weight = task.grad_weight;
    read.tokens = last - first, read.c = c, read.d = task.d, read.k = task.k;
    read.element = task.element, read.back = task.back, read.offset = task.offset, read.epsilon = task.epsilon;
    return read;
}

inline Sum sum_of(const Connect &task, const float *weights, int64_t first, int64_t last) {
    const int64_t d = task.d, c = task.c;
    Sum sum{};
    sum.x = at(task, read_from(task), first, d * c), sum.input = at(task, task.input, first, c), sum.weights = weights;
    sum.grad_x = at(task, task.grad_x, first, d * c), sum.grad_later = at(task, task.grad_out, first, d * c);
    sum.tokens = last - first, sum.c = c, sum.d = task.d, sum.element = task.element, sum.back = task.back;
    return sum;
}

inline void map(const Connect &task, const float *logits, float *matrix, float *grad_logits, int64_t count) {
    const Map map{logits, matrix, grad_logits, task.parts, count, task.back};
    chosen.map(map, 0, (count + chosen.block - 1) / chosen.block);
}

inline std::vector<float> scale_of(const Connect &task) {
    std::vector<float> scale(task.k);
    for (int i = 0; i < task.k; i++) scale[i] = task.scale[group(task, i)];
    return scale;
}

// What the next piece needs first, and `also` what this one needs behind its products.
inline Ahead ahead_of(const Connect &task, const void *one, const void *two, const void *also, int64_t first, int64_t last) {
    const int64_t next = std::min(task.tokens, last + last - first), size = task.d * task.c;
    Ahead ahead;
    ahead.tensors[0] = at(task, one, last, size), ahead.tensors[1] = at(task, two, last, size);
    ahead.tensors[2] = at(task, also, first, size);
    ahead.bytes = (next - last) * stream_bytes(task) / task.tokens * task.d;
    return ahead;
}

// Memory of this thread, not cleared, which it keeps: from the system it would come as new pages each time.
struct Scratch {
    float *free;
    explicit Scratch(int64_t size) {
        static thread_local std::unique_ptr<float[]> numbers;
        static thread_local int64_t available = 0;
        if (available < size) numbers.reset(new float[size]), available = size;
        free = numbers.get();
    }
    float *take(int64_t count) { return free += count, free - count; }
};

// Coefficients of each token
// ---------------------------------------------------------------------------------------------------------------------

inline void forward(const Connect &task, int64_t first, int64_t last) {
    const int64_t tokens = last - first, d = task.d, k = task.k, p = k - 2 * d;
    Scratch scratch(tokens * (p + k + 1));
    const auto scale = scale_of(task);
    if (writes(task)) chosen.write(write_of(task, first, last), 0, tokens, nullptr);
    Read read = read_of(task, first, last);
    read.scale = scale.data(), read.mix = scratch.take(tokens * p);
    if (task.projection == nullptr) read.projection = scratch.take(tokens * k), read.inverse_rms = scratch.take(tokens);
    chosen.read(read, 0, tokens, ahead_of(task, task.x, nullptr, nullptr, first, last));
    map(task, read.mix, at(task.mix, first, d * d), nullptr, tokens);
}

// The sums are those of the gradients at bias (k), scale (3), and mix and weights before (d, d + 1) where tokens share them.
inline int sums_of(const Connect &task) {
    return task.k + 3 + (writes(task) && task.matrices == 1 ? task.d * (task.d + 1) : 0);
}

inline void backward(const Connect &task, int64_t first, int64_t last, float *sums) {
    const int64_t tokens = last - first, d = task.d, k = task.k, p = k - 2 * d, size = d * task.c;
    Scratch scratch(tokens * (2 * p + k + (writes(task) ? size : 0)));
    const auto scale = scale_of(task);
    Read read = read_of(task, first, last);
    read.scale = scale.data();
    float *const logits = scratch.take(tokens * p);
    for (int64_t token = 0; token < tokens; token++) {
        const float *const projection = read.projection + token * k + 2 * d;
        const float r = read.inverse_rms[token];
        for (int64_t i = 0; i < p; i++) logits[token * p + i] = projection[i] * r * scale[2 * d + i] + task.bias[2 * d + i];
    }
    read.mix = scratch.take(tokens * p), read.grad_logits = scratch.take(tokens * k);
    map(task, logits, at(task.mix, first, d * d), read.mix, tokens);
    if (writes(task)) read.grad_x = scratch.take(tokens * size);
    chosen.read(read, 0, tokens,
                ahead_of(task, read_from(task), task.grad_out, writes(task) ? task.x : nullptr, first, last));
    std::fill_n(sums, k + 3, 0.f);
    std::vector<float> scaled(k);  // the gradient at a scale of each logit
    for (int64_t token = 0; token < tokens; token++) {
        const float *const grad = read.grad_logits + token * k, *const projection = read.projection + token * k;
        const float r = read.inverse_rms[token];
        for (int64_t i = 0; i < k; i++) sums[i] += grad[i], scaled[i] += grad[i] * projection[i] * r;
    }
    for (int i = 0; i < k; i++) sums[k + group(task, i)] += scaled[i];
    if (!writes(task)) return;
    Write write = write_of(task, first, last);
    write.out = read.grad_x;
    chosen.write(write, 0, tokens, sums + k + 3);
}

// Coefficients that all tokens share
// ---------------------------------------------------------------------------------------------------------------------

inline void forward_alike(const Connect &task, int64_t first, int64_t last, const float *read_weights) {
    if (writes(task)) chosen.write(write_of(task, first, last), 0, last - first, nullptr);
    chosen.sum(sum_of(task, read_weights, first, last), 0, last - first, nullptr);
}

// The sums are those of the gradients at the read weights (d), and at mix and weights before where tokens share them.
inline void backward_alike(const Connect &task, int64_t first, int64_t last, const float *read_weights, float *sums) {
    Scratch scratch(writes(task) ? (last - first) * task.d * task.c : 0);
    Sum sum = sum_of(task, read_weights, first, last);
    if (writes(task)) sum.grad_x = scratch.free;
    chosen.sum(sum, 0, last - first, sums);
    if (!writes(task)) return;
    Write write = write_of(task, first, last);
    write.out = sum.grad_x;
    chosen.write(write, 0, last - first, sums + task.d);
}

// All tokens
// ---------------------------------------------------------------------------------------------------------------------

// Adds the sums of all pieces, one after the other.
inline std::vector<float> added(const std::vector<float> &sums, int width) {
    std::vector<double> total(width);
    for (size_t i = 0; i < sums.size(); i++) total[i % width] += sums[i];
    return {total.begin(), total.end()};
}

inline void connect_each(const Connect &task, int threads) {
    const int64_t size = piece_of(task);
    if (!task.back) return in_pieces(task.tokens, size, threads, [&](int64_t a, int64_t b) { forward(task, a, b); });
    const int width = sums_of(task);
    std::vector<float> sums((task.tokens + size - 1) / size * width);
    in_pieces(task.tokens, size, threads,
              [&](int64_t a, int64_t b) { backward(task, a, b, sums.data() + a / size * width); });
    const auto total = added(sums, width);
    std::copy_n(total.data(), task.k, task.grad_bias);
    std::copy_n(total.data() + task.k, 3, task.grad_scale);
    if (width > task.k + 3) take_apart(total.data() + task.k + 3, task.d, task.grad_before_mix, task.grad_before_write);
    if (task.grad_weight == nullptr) return;
    const Read read = read_of(task, 0, task.tokens);
    in_pieces(task.d * task.c, COLUMNS, threads, [&](int64_t a, int64_t b) { chosen.weight_gradient(read, a, b); });
}

inline void connect_alike(const Connect &task, int threads) {
    const int64_t size = piece_of(task);
    const int d = task.d;
    float read_weights[LARGEST], read[LARGEST], write[LARGEST];
    for (int j = 0; j < d; j++) {
        read[j] = sigmoid(task.bias[j]), read_weights[j] = read[j] + task.offset, write[j] = sigmoid(task.bias[d + j]);
        if (!task.back) task.write[j] = 2 * write[j];
    }
    const float *const logits = task.bias + 2 * d;
    if (!task.back) {
        map(task, logits, task.mix, nullptr, 1);
        return in_pieces(task.tokens, size, threads,
                         [&](int64_t a, int64_t b) { forward_alike(task, a, b, read_weights); });
    }
    const int width = d + (writes(task) && task.matrices == 1 ? d * (d + 1) : 0);
    std::vector<float> sums((task.tokens + size - 1) / size * width);
    in_pieces(task.tokens, size, threads, [&](int64_t a, int64_t b) {
        backward_alike(task, a, b, read_weights, sums.data() + a / size * width);
    });
    const auto total = added(sums, width);
    for (int j = 0; j < d; j++) {
        task.grad_bias[j] = total[j] * read[j] * (1 - read[j]);
        task.grad_bias[d + j] = task.write[j] * 2 * write[j] * (1 - write[j]);
    }
    map(task, logits, task.mix, task.grad_bias + 2 * d, 1);
    if (width > d) take_apart(total.data() + d, d, task.grad_before_mix, task.grad_before_write);
}

inline void connect(const Connect &task, int threads) {
    const int64_t bytes = stream_bytes(task);
    on_large_pages(task.back ? task.grad_x : task.out, task.d * bytes);
    on_large_pages(task.back ? task.grad_y : task.input, bytes);
    is_static(task) ? connect_alike(task, threads) : connect_each(task, threads);
}

}  // namespace connection
