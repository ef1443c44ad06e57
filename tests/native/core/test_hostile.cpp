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

fikit_value until(uint64_t address, uint64_t value) {
    return {CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_WAIT_VALUE_GEQ, 0, 0, address, value};
}

// As of memory that is mapped and that nobody may use yet.
void a_word_that_cannot_be_read() {
    Rig rig;
    Tenant other = rig.ready("other");
    RawTenant tenant(rig);
    const uint64_t word = tenant.allocate(8);
    for (const Function broken : {Function::cuMemcpyDtoHAsync_, Function::cuStreamWriteValue64_}) {
        null_driver::fail(broken, CUDA_ERROR_INVALID_VALUE, broken == Function::cuMemcpyDtoHAsync_ ? 0 : 1,
                          1);
        const uint64_t errors = tenant.inbox->deferred_count;
        CHECK(tenant.value(0, until(word, 1)));
        rig.turn_until([&] { return tenant.inbox->deferred_count != errors; });
        CHECK_EQUAL(tenant.deferred_text(), "stream memory operation: CUDA_ERROR_INVALID_VALUE (1)");
        CHECK_EQUAL(rig.core().failure(), 0);
        works(rig, other);
    }
    CHECK(!tenant.ended());
    // Nothing that was never asked is waited for.
    rig.while_turning([&] { CHECK(rig.core().end("hostile", 1, "over")); });
    CHECK_EQUAL(rig.wait_ended().id, "hostile");
}

// Each look takes driver calls, which others' launches wait for.
void many_streams_that_wait_for_words_are_looked_at_in_turn() {
    Rig rig;
    Tenant other = rig.ready("other");
    RawTenant tenant(rig);
    constexpr uint32_t streams = 100;
    const uint64_t word = tenant.allocate(8);
    for (const CUstream stream : rig.streams()) null_driver::hold(stream);
    for (uint32_t stream = 1; stream <= streams; ++stream) {
        fikit_fill fill{};
        fill.record.stream = stream;
        fill.device = word;
        fill.count = fill.width = 1;
        CHECK(tenant.stream_create(stream) && tenant.write(FIKIT_OP_FILL, fill) &&
              tenant.value(stream, until(word, 1)));
    }
    rig.settle();
    for (const CUstream stream : rig.streams()) null_driver::release(stream);
    const uint64_t before = null_driver::count(Function::cuMemcpyDtoHAsync_);
    rig.turn();
    CHECK(null_driver::count(Function::cuMemcpyDtoHAsync_) - before <= 16);
    rig.turn_until([&] { return null_driver::count(Function::cuMemcpyDtoHAsync_) - before >= 3 * streams; });
    works(rig, other);
}

}  // namespace

int main(int count, char** arguments) {
    static constexpr Case cases[] = {
        CASE(bytes_without_end_before_a_descriptor),
        CASE(a_word_that_cannot_be_read),
        CASE(many_streams_that_wait_for_words_are_looked_at_in_turn),
    };
    return run_cases(cases, count, arguments);
}
