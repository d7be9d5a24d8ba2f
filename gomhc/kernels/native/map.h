// The frame of all maps from logits to matrices: blocks of them are brought into lanes, made by what their kind names, and
// brought back. Included once for each instruction set, inside its namespace.
//
// A way to make matrices is a struct with the functions `scratch` (vectors that it takes), `forward` (logits -> matrices) and
// `backward` (logits, gradients at matrices -> gradients at logits), on numbers in lanes. It computes each lane as if it were
// alone. Of lanes whose bit is not set in `lanes`, nobody looks at the results.

#include "exponential.h"
#include "rotation.h"
#include "softmax.h"
#include "sinkhorn.h"
#include "normalization.h"
#include "permutations.h"
#include "off_diagonal.h"
#include "halves.h"
#include "orthogonal.h"
#include "factored_rotation.h"
#include "spectral_sphere.h"
#include "projection.h"
#include "transportation.h"
#include "composites.h"

// Calls `visit` with the struct of this kind and size.
template <typename Visit> static inline auto with_go(const Part &part, const Visit &visit) {
    static_assert(LARGEST_ROTATION < 1000, "a size is two digits of d and three of s");
    switch (1000 * part.d + part.number) {
        case 2001: return visit(Go<2, 1, false>());
        case 2002: return visit(Go<2, 2, false>());
        case 2003: return visit(Go<2, 3, false>());
        case 3001: return visit(Go<3, 1, false>());
        case 3002: return visit(Go<3, 2, false>());
        case 4001: return visit(Go<4, 1, false>());
        case 4002: return visit(Go<4, 2, false>());
        case 4003: return visit(Go<4, 3, false>());
        case 8001: return visit(Go<8, 1, false>());
        case 8002: return visit(Go<8, 2, false>());
        default: return visit(Go<0, 0, false>());
    }
}

template <typename Visit> static inline auto with_unitary(const Part &part, const Visit &visit) {
    switch (1000 * part.d + part.number) {
        case 4001: return visit(Go<4, 1, true>());
        case 4002: return visit(Go<4, 2, true>());
        default: return visit(Go<0, 0, true>());
    }
}

template <template <int> class Factors, typename Visit> static inline auto with_factors(const Part &part, const Visit &visit) {
    switch (1000 * part.d + part.number) {
        case 4001: return visit(InDoubles<FactoredGo<Factors, 4, 1>>());
        case 4002: return visit(InDoubles<FactoredGo<Factors, 4, 2>>());
        case 8001: return visit(InDoubles<FactoredGo<Factors, 8, 1>>());
        case 8002: return visit(InDoubles<FactoredGo<Factors, 8, 2>>());
        default: return visit(InDoubles<FactoredGo<Factors, 0, 0>>());
    }
}

template <typename Visit> static inline auto with_permutations(const Part &part, const Visit &visit) {
    switch (part.d) {
        case 1: return visit(Permutations<1>());
        case 2: return visit(Permutations<2>());
        case 3: return visit(Permutations<3>());
        case 4: return visit(Permutations<4>());
        case 5: return visit(Permutations<5>());
        case 6: return visit(Permutations<6>());
        case 7: return visit(Permutations<7>());
        default: return visit(Permutations<8>());
    }
}

template <template <int> class Method, typename Visit> static inline auto with_size(const Part &part, const Visit &visit) {
    switch (part.d) {
        case 2: return visit(Method<2>());
        case 3: return visit(Method<3>());
        case 4: return visit(Method<4>());
        case 8: return visit(Method<8>());
        default: return visit(Method<0>());
    }
}

// No mixing at all, and no logits.
struct Unmixed {
    static int64_t scratch(const Part &) { return 0; }
    static void forward(const Part &part, const Lanes *, Lanes *image, uint32_t, Memory) {
        for (int i = 0; i < part.d * part.d; i++) image[i] = Lanes{} + (i % (part.d + 1) == 0 ? 1.f : 0.f);
    }
    static void backward(const Part &, const Lanes *, const Lanes *, Lanes *, uint32_t, Memory) {}
};

template <int D> struct Sinkhorn : Scaling<D, false> {};
template <int D> struct SinkhornV4 : Scaling<D, true> {};
template <int D> struct OrthogonalInDoubles : InDoubles<CayleyRotation<D>> {};
template <int D> struct SphereInDoubles : InDoubles<SpectralSphere<D>> {};
template <int D> struct ProjectionInDoubles : InDoubles<Projection<D>> {};

template <typename Visit> static inline auto with_method(const Part &part, const Visit &visit) {
    switch (part.kind) {
        case GO: case GO_SQUARE: return with_go(part, visit);
        case GO_UNITARY: return with_unitary(part, visit);
        case GO_HOUSEHOLDER: return with_factors<Reflections>(part, visit);
        case GO_GIVENS: return with_factors<PlaneRotations>(part, visit);
        case SINKHORN: return with_size<Sinkhorn>(part, visit);
        case SINKHORN_LINEAR: return with_size<LinearSinkhorn>(part, visit);
        case SINKHORN_V4: return with_size<SinkhornV4>(part, visit);
        case PERMUTATIONS: return with_permutations(part, visit);
        case IDENTITY: return visit(Unmixed());
        case TRANSPORTATION: return with_size<Transportation>(part, visit);
        case ROWS: return with_size<Rows>(part, visit);
        case CIRCULANT: return with_size<Circulant>(part, visit);
        case OFF_DIAGONAL: return with_size<OffDiagonal>(part, visit);
        case ORTHOGONAL: return with_size<OrthogonalInDoubles>(part, visit);
        case QUATERNIONS: return visit(InDoubles<Quaternions>());
        case SPECTRAL_SPHERE: return with_size<SphereInDoubles>(part, visit);
        default: return with_size<ProjectionInDoubles>(part, visit);
    }
}

static int64_t scratch_of(const Part *part) {
    if (part->kind == KRONECKER) return Kronecker::scratch(part);
    if (part->kind == AVERAGE) return Average::scratch(part);
    return with_method(*part, [&](auto method) { return method.scratch(*part); });
}

static void image_of(const Part *part, const Lanes *logits, Lanes *image, uint32_t lanes, Memory memory) {
    if (part->kind == KRONECKER) return Kronecker::forward(part, logits, image, lanes, memory);
    if (part->kind == AVERAGE) return Average::forward(part, logits, image, lanes, memory);
    with_method(*part, [&](auto method) { method.forward(*part, logits, image, lanes, memory); });
}

static void gradient_of(const Part *part, const Lanes *logits, const Lanes *grad, Lanes *grad_logits, uint32_t lanes,
                        Memory memory) {
    if (part->kind == KRONECKER) return Kronecker::backward(part, logits, grad, grad_logits, lanes, memory);
    if (part->kind == AVERAGE) return Average::backward(part, logits, grad, grad_logits, lanes, memory);
    with_method(*part, [&](auto method) { method.backward(*part, logits, grad, grad_logits, lanes, memory); });
}

static void map(const Map &task, int64_t first, int64_t last) {
    const Part *const whole = task.parts;
    const int p = whole->p, dd = whole->d * whole->d;
    const size_t vectors = 2 * size_t(p) + dd + scratch_of(whole);
    const std::unique_ptr<char[]> bytes(new char[vectors * sizeof(Lanes) + 64]);  // a vector would clear it
    Memory memory{bytes.get() + (64 - reinterpret_cast<uintptr_t>(bytes.get()) % 64) % 64};
    Lanes *const logits = memory.take<Lanes>(p), *const grad_logits = memory.take<Lanes>(p);
    Lanes *const image = memory.take<Lanes>(dd);
    for (int64_t block = first; block < last; block++) {
        const int64_t start = block * BLOCK;
        const int count = int(std::min<int64_t>(BLOCK, task.count - start));
        const uint32_t lanes = (1u << count) - 1;
        load(logits, task.logits + start * p, p, count, task.logits + task.count * p);
        if (!task.back) {
            image_of(whole, logits, image, lanes, memory);
            store(task.matrix + start * dd, image, dd, count);
        } else {
            load(image, task.matrix + start * dd, dd, count, task.matrix + task.count * dd);
            gradient_of(whole, logits, image, grad_logits, lanes, memory);
            store(task.grad_logits + start * p, grad_logits, p, count);
        }
    }
}
