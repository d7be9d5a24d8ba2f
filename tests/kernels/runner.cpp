// Carries out tasks on a built library for a Python process that cannot load it: one for another architecture, or for
// this one on an emulated processor. support/other_library.py is the other end.
//   runner LIBRARY: the name of the instruction set, and then for each task on standard input its results
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Header {
    char function[24];
    int32_t threads, pointers, bytes;  // the structure's pointers are its first fields
};

static void take(void *to, size_t size) {
    if (std::fread(to, 1, size, stdin) != size) std::exit(0);  // the caller is done
}

static std::vector<char> take_many(size_t size) {
    std::vector<char> bytes(size);
    take(bytes.data(), size);
    return bytes;
}

int main(int, char **arguments) {
    void *const library = dlopen(arguments[1], RTLD_NOW);
    if (library == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    using Name = const char *(*)();
    std::puts(reinterpret_cast<Name>(dlsym(library, "gomhc_instruction_set"))());
    while (true) {
        std::fflush(stdout);
        Header header;
        take(&header, sizeof(header));
        auto task = take_many(header.bytes);
        std::vector<std::vector<char>> tensors;
        for (int i = 0; i < header.pointers; i++) {
            int64_t size;
            take(&size, sizeof(size));
            tensors.push_back(take_many(size));
            const void *const address = size == 0 ? nullptr : tensors.back().data();
            std::memcpy(task.data() + i * sizeof(void *), &address, sizeof(void *));
        }
        using Function = void (*)(const void *, int);
        reinterpret_cast<Function>(dlsym(library, header.function))(task.data(), header.threads);
        for (const auto &tensor : tensors) std::fwrite(tensor.data(), 1, tensor.size(), stdout);
    }
}
