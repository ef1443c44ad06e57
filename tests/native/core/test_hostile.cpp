// Tenants that misuse what they may write. At most their own session is worse off.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "raw_tenant.hpp"

using namespace fikit;
using namespace fikit::test;

namespace {

// A call takes the descriptor that was sent before it, behind whatever else was; but what comes without end
// does not keep the dispatch thread.
void bytes_without_end_before_a_descriptor() {
    Rig rig;
    Tenant other = rig.ready("other");
    RawTenant tenant(rig);
    const std::vector<char> bytes(64 << 10);
    CHECK(send(tenant.lifeline.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == 64 << 10);
    const auto unread = [&] {
        int left = 0;
        CHECK(ioctl(tenant.lifeline.get(), SIOCOUTQ, &left) == 0);
        return left;
    };
    CHECK(tenant.ask(fikit_call_host_register, fikit_request_host_register{1, 0, FIKIT_PAGE, 0}));
    rig.turn();
    CHECK(unread() > 0);
    works(rig, other);
    rig.turn_until([&] { return tenant.answered() == 1; });
    CHECK_EQUAL(unread(), 0);
    CHECK_EQUAL(tenant.inbox->call_status, CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

int main(int count, char** arguments) {
    static constexpr Case cases[] = {
        CASE(bytes_without_end_before_a_descriptor),
    };
    return run_cases(cases, count, arguments);
}
