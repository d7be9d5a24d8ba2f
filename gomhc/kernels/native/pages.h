// Large pages for large results. They are mostly memory that the system has just handed out, and to be given it in pages of
// 4 KB can take longer than what is computed there. NumPy asks for the same.
#pragma once

#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#endif

inline void on_large_pages(const void *address, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t PAGE = 1 << 21;
    const auto start = reinterpret_cast<uintptr_t>(address);
    const uintptr_t first = (start + PAGE - 1) / PAGE * PAGE, last = (start + uintptr_t(bytes)) / PAGE * PAGE;
    if (address != nullptr && first < last) madvise(reinterpret_cast<void *>(first), last - first, MADV_HUGEPAGE);
#else
    (void)address, (void)bytes;
#endif
}
