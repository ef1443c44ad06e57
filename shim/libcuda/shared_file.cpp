#include "shared_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <charconv>

#include "../older_libc.hpp"
#include "mappings.hpp"

namespace fikit::shim {
namespace {

bool is_of(const struct stat& information, const Mapping& mapping) {
    return S_ISREG(information.st_mode) && information.st_dev == mapping.device &&
           information.st_ino == mapping.inode;
}

bool is_of(int descriptor, const Mapping& mapping) {
    struct stat information{};
    return status_of(descriptor, information) == 0 && is_of(information, mapping) &&
           (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDWR;
}

// By its name, or, when it has none any more, a descriptor that the program still has.
int open_file(const Mapping& mapping) {
    struct stat named{};
    int descriptor = -1;
    if (status_of(mapping.path, named) == 0 && is_of(named, mapping))
        descriptor = open(mapping.path, O_RDWR | O_CLOEXEC);
    if (descriptor >= 0 && is_of(descriptor, mapping)) return descriptor;
    if (descriptor >= 0) close(descriptor);
    DIR* const all = opendir("/proc/thread-self/fd");
    if (all == nullptr) return -1;
    descriptor = -1;
    while (const dirent* const entry = readdir(all)) {
        int number = -1;
        const char* const end = entry->d_name + strlen(entry->d_name);
        if (std::from_chars(entry->d_name, end, number).ptr != end || !is_of(number, mapping)) continue;
        descriptor = fcntl(number, F_DUPFD_CLOEXEC, 0);
        break;
    }
    closedir(all);
    return descriptor;
}

}  // namespace

SharedFile::SharedFile(uint64_t address, uint64_t bytes) {
    uint64_t at = address;  // up to here it is the file's
    Mapping mapping, first;
    for (Mappings all(at); at < address + bytes && all.next(mapping);) {
        if (mapping.begin > at || !mapping.writable || !mapping.shared || mapping.inode == 0) break;
        const uint64_t offset = mapping.offset + (at - mapping.begin);
        if (at == address) {
            descriptor_ = open_file(mapping);
            if (descriptor_ < 0) break;
            first = mapping;
            offset_ = offset;
        } else if (mapping.device != first.device || mapping.inode != first.inode ||
                   offset != offset_ + (at - address)) {
            break;
        }
        at = mapping.end;
    }
    if (at >= address + bytes || descriptor_ < 0) return;
    close(descriptor_);
    descriptor_ = -1;
}

SharedFile::~SharedFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace fikit::shim
