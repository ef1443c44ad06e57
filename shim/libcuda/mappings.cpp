#include "mappings.hpp"

#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "../older_libc.hpp"

namespace fikit::shim {

Mappings::~Mappings() {
    free(line_);
    if (file_ != nullptr) fclose(file_);
}

// A line of /proc/thread-self/maps (proc(5)).
bool Mappings::next(Mapping& mapping) {
    if (file_ == nullptr || getline(&line_, &room_, file_) <= 0) return false;
    unsigned long begin, end, offset, inode;
    unsigned major_number, minor_number;
    char allowed[5];
    int path = 0;
    if (scan(line_, "%lx-%lx %4s %lx %x:%x %lu %n", &begin, &end, allowed, &offset, &major_number,
             &minor_number, &inode, &path) < 7)
        return false;
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

}  // namespace fikit::shim
