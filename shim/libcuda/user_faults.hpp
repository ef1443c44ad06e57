// userfaultfd(2), by which writers to pages of private and of shared memory can be made to wait.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// Of Linux 5.11 and 5.19: what builds this may have older headers than what runs it.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

namespace fikit::shim {

// A descriptor, for faults of the kernel's own too where this process may have those; -1: it cannot have one.
inline int open_user_faults() {
    int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
    if (faults < 0) faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
    uffdio_api api = {UFFD_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM, 0};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api) == 0) return faults;
    close(faults);
    return -1;
}

}  // namespace fikit::shim
