#include "mappings.hpp"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "../older_libc.hpp"

namespace fikit::shim {

Mappings::~Mappings() {
    free(line_);
    if (file_ != nullptr) fclose(file_);
}

namespace {

// PROCMAP_QUERY of linux/fs.h, which is newer than what this is built with may be.
struct Query {
    uint64_t bytes = sizeof(Query), flags = 0, address = 0;
    uint64_t begin = 0, end = 0, allowed = 0, page_bytes = 0, offset = 0, inode = 0;
    uint32_t major_number = 0, minor_number = 0;
    uint32_t name_bytes = 0, build_id_bytes = 0;
    uint64_t name = 0, build_id = 0;
};
constexpr unsigned long procmap_query = _IOWR('f', 17, Query);
enum : uint64_t { readable = 1, writable = 2, shared = 8, covering_or_next = 16 };

}  // namespace

int Mappings::ask(Mapping& mapping) {
    if (line_ == nullptr) line_ = static_cast<char*>(malloc(room_ = PATH_MAX));
    if (line_ == nullptr) return ENOMEM;
    Query query;
    query.flags = covering_or_next;
    query.address = from_;
    query.name = reinterpret_cast<uintptr_t>(line_);
    query.name_bytes = PATH_MAX;
    if (ioctl(fileno(file_), procmap_query, &query) != 0) return errno;
    if (query.name_bytes == 0) line_[0] = '\0';
    mapping = {.begin = query.begin,
               .end = query.end,
               .offset = query.offset,
               .device = makedev(query.major_number, query.minor_number),
               .inode = query.inode,
               .writable = (query.allowed & (readable | writable)) == (readable | writable),
               .shared = (query.allowed & shared) != 0,
               .path = line_};
    return 0;
}

// A line of /proc/thread-self/maps (proc(5)).
bool Mappings::read(Mapping& mapping) {
    unsigned long begin, end, offset, inode;
    unsigned major_number, minor_number;
    char allowed[5];
    int path = 0;
    do {
        if (getline(&line_, &room_, file_) <= 0 ||
            scan(line_, "%lx-%lx %4s %lx %x:%x %lu %n", &begin, &end, allowed, &offset, &major_number,
                 &minor_number, &inode, &path) < 7)
            return false;
    } while (end <= from_);
    line_[strcspn(line_, "\n")] = '\0';
    mapping = {.begin = begin,
               .end = end,
               .offset = offset,
               .device = makedev(major_number, minor_number),
               .inode = inode,
               .writable = strncmp(allowed, "rw", 2) == 0,
               .shared = allowed[3] == 's',
               .path = line_ + path};
    return true;
}

bool Mappings::next(Mapping& mapping) {
    if (file_ == nullptr) return false;
    const int refused = is_text_ ? ENOTTY : ask(mapping);
    if (refused == ENOENT) return false;  // none is left
    is_text_ = refused != 0;
    if (is_text_ && !read(mapping)) return false;
    from_ = mapping.end;
    return true;
}

}  // namespace fikit::shim
