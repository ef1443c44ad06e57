// The forms of instructions as the driver's compiler takes them for sm_90 (compared with ptxas 13.0), from
// the PTX ISA's section of each instruction. What is not here is refused, whatever its lowering would make of
// it; instructions that are not here at all are checked by their lowering alone.
//
// A line is one form: the instruction, its modifiers in any order, and after the colon its types in theirs.
// `a|b`: one of them; `?`: or none. Before them, what came after version 7.8 of the PTX ISA has its version.
// Words in capitals stand for what `lists` says.
#pragma once

#include <string_view>

namespace fikit::sim::ptx {

inline constexpr std::string_view lists = R"(
ROUNDED rn|rz|rm|rp
WHOLE rni|rzi|rmi|rpi
INT u16|s16|u32|s32|u64|s64
WORD u32|s32|u64|s64
BITS b16|b32|b64
REAL f32|f64
HALF f16|f16x2
BRAIN bf16|bf16x2
BYTE u8|s8
LOGIC and|or|xor
SIGNED eq|ne|lt|le|gt|ge
UNSIGNED lo|ls|hi|hs
ORDER eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan
SHARED shared|shared::cta|shared::cluster
PARAM param|param::entry|param::func
SCOPE cta|cluster|gpu|sys
LEVEL L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate
AHEAD L2::64B|L2::128B|L2::256B
READ weak? ca|cg|cs|cv|lu? LEVEL? AHEAD? L2::cache_hint? global|local|const|SHARED|PARAM?
READ_ONLY nc ca|cg|cs? LEVEL? AHEAD? L2::cache_hint? global
WRITE weak? wb|wt|cg|cs? LEVEL? L2::cache_hint? global|local|SHARED|PARAM?
COMMON LEVEL? AHEAD? L2::cache_hint? global|SHARED?
ATOM relaxed|acquire|release|acq_rel? SCOPE? L2::cache_hint? global|SHARED?
RED relaxed|release? SCOPE? L2::cache_hint? global|SHARED?
MMA sync aligned row col
SPARSE sp sync aligned row col
ORDERED sp::ordered_metadata sync aligned row col
DIMENSION 1d|2d|3d|4d|5d
TILED tile|tile::gather4|tile::scatter4|im2col|im2col::w|im2col::w::128|im2col_no_offs
MAP_ADDRESS_AND_SIZES global_address|rank|box_dim|global_dim|global_stride|element_stride
MAP_KINDS elemtype|interleave_layout|swizzle_mode|fill_mode
ARRIVE release|relaxed? cta|cluster? shared::cta|shared?
BULK L2::cache_hint? mbarrier::complete_tx::bytes
BULK_OUT L2::cache_hint? bulk_group
ASYNC async mbarrier::complete_tx::bytes shared::cluster?
PRIORITY L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged
TILE m16n16k16|m32n8k16|m8n32k16
WMMA mma sync aligned row|col row|col
WMMA_SPACE global|shared|shared::cta
MEMORY b8|u8|s8|b16|u16|s16|b32|u32|s32|b64|u64|s64|f32|f64
NARROW b8|u8|s8|b16|u16|s16|b32|u32|s32|f32
FLAT 1d|2d|3d|a1d|a2d
CUBE cube|acube
MIPMAP base|level|grad
TEXEL f16|f32|u32|s32
EXTENT width|height|depth
ENUMERATED channel_data_type|channel_order
)";

inline constexpr std::string_view forms = R"(
add|sub : INT
8.0 add : u16x2|s16x2
add|sub sat : s32
add|sub cc : WORD
addc|subc cc? : WORD
mul|mad lo|hi : INT
mul|mad wide : u16|s16|u32|s32
mad lo|hi cc : WORD
mad hi sat : s32
madc lo|hi cc? : WORD
mul24|mad24 lo|hi : u32|s32
mad24 hi sat : s32
sad|div|rem : INT
add|sub|mul rn? ftz? sat? : HALF|f32
add|sub|mul rn? : BRAIN|f64
add|sub|mul ROUNDED ftz? sat? : f32
add|sub|mul ROUNDED : f64
mad|fma ROUNDED ftz? sat? : f32
mad|fma ROUNDED : f64
fma rn ftz? sat? : HALF
fma rn ftz? relu : HALF
fma rn relu? : BRAIN
div|rcp|sqrt ROUNDED ftz? : f32
div|rcp|sqrt ROUNDED : f64
div approx|full ftz? : f32
rcp|sqrt|sin|cos|lg2|ex2 approx ftz? : f32
rcp approx ftz : f64
rsqrt approx ftz? : f32|f64
tanh approx : f32|HALF|BRAIN
ex2 approx : HALF
ex2 approx ftz : BRAIN
abs|neg : s16|s32|s64|f64|BRAIN
abs|neg ftz? : f32|HALF
copysign : REAL
testp finite|infinite|number|notanumber|normal|subnormal : REAL
min|max : INT|f64
8.0 min|max : u16x2|s16x2
8.0 min|max relu : s32|s16x2
min|max ftz? NaN? : f32|HALF
min|max NaN? : BRAIN
min|max ftz? NaN? xorsign abs : f32|HALF
min|max NaN? xorsign abs : BRAIN

and|or|xor|not : pred|BITS
cnot|shl : BITS
shr : BITS|INT
lop3 : b32
8.2 lop3 or|and : b32
popc|clz|brev|bfi : b32|b64
bfe : WORD
bfind shiftamt? : WORD
fns : b32
bmsk clamp|wrap : b32
szext clamp|wrap : u32|s32
shf l|r clamp|wrap : b32
prmt f4e|b4e|rc8|ecl|ecr|rc16? : b32
dp4a : u32|s32 u32|s32
dp2a lo|hi : u32|s32 u32|s32
vadd|vsub|vabsdiff|vmin|vmax sat? add|min|max? : u32|s32 u32|s32 u32|s32
vshl|vshr clamp|wrap sat? add|min|max? : u32|s32 u32|s32 u32
vmad po? sat? shr7|shr15? : u32|s32 u32|s32 u32|s32
vset SIGNED add|min|max? : u32|s32 u32|s32
vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2 sat|add? : u32|s32 u32|s32 u32|s32
vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4 sat|add? : u32|s32 u32|s32 u32|s32
vset2|vset4 SIGNED add? : u32|s32 u32|s32

setp eq|ne LOGIC? : BITS
setp SIGNED LOGIC? : INT
setp UNSIGNED LOGIC? : u16|u32|u64
setp ORDER ftz? LOGIC? : f32|HALF
setp ORDER LOGIC? : f64|BRAIN
set eq|ne LOGIC? : u32|s32|f32|f16|bf16 BITS
set SIGNED LOGIC? : u32|s32|f32|f16|bf16 INT
set UNSIGNED LOGIC? : u32|s32|f32|f16|bf16 u16|u32|u64
set ORDER ftz? LOGIC? : u32|s32|f32|f16 f32
set ORDER LOGIC? : u32|s32|f32|f16|bf16 f64
set ORDER LOGIC? : bf16 f32
set ORDER ftz? LOGIC? : u16|s16|u32|s32|f16 f16
set ORDER LOGIC? : u16|s16|u32|s32|bf16 bf16
set ORDER ftz? LOGIC? : u32|s32|f16x2 f16x2
set ORDER LOGIC? : u32|s32|bf16x2 bf16x2
selp : BITS|INT|REAL
slct : BITS|INT|REAL s32|f32
slct ftz : BITS|INT|REAL f32

mov : pred|BITS|INT|REAL|b128
mov v2 : BITS|INT|REAL
mov v4 : b16|u16|s16|b32|u32|s32|f32
cvta to? global|local|const|SHARED|PARAM : u32|u64
cvt : BYTE|INT BYTE|INT
cvt sat : u8 s8|INT
cvt sat : s8 u8|INT
cvt sat : u16 s8|s16|WORD
cvt sat : s16 u16|WORD
cvt sat : u32 s8|s16|s32|u64|s64
cvt sat : s32 u32|u64|s64
cvt sat : u64 s8|s16|s32|s64
cvt sat : s64 u64
cvt sat? : f32|f64 f16
cvt ftz sat? : f32 f16|f32
cvt sat? : f32 f32
cvt ftz? sat? : f64 f32
cvt sat? : f64 f64
cvt sat? : f16 f16
cvt ROUNDED? ftz? : f32 bf16
cvt ROUNDED? : f64 bf16
cvt : bf16 bf16
cvt ROUNDED sat? : f16|REAL BYTE|INT
cvt ROUNDED ftz sat? : f32 BYTE|INT
cvt ROUNDED : bf16 BYTE|INT
cvt ROUNDED sat? : f16 f64
cvt ROUNDED ftz? sat? : f32 f64
cvt ROUNDED ftz? sat? : f16 f32
cvt ROUNDED ftz? : bf16 f32
cvt ROUNDED : bf16 f64
cvt ROUNDED? : bf16 f16
cvt ROUNDED? : f16 bf16
cvt rn|rz relu? : f16|bf16|f16x2|bf16x2 f32
8.1 cvt rn|rz satfinite relu? : f16|bf16|f16x2|bf16x2 f32
cvt rn|rz relu? : tf32 f32
cvt rna satfinite? : tf32 f32
cvt WHOLE sat? : BYTE|INT f16|REAL
cvt WHOLE ftz sat? : BYTE|INT f32
cvt WHOLE : BYTE|INT bf16
cvt WHOLE sat? : f16 f16
cvt WHOLE : bf16 bf16
cvt WHOLE ftz? sat? : f32 f32
cvt WHOLE sat? : f64 f64
cvt rn satfinite relu? : e4m3x2|e5m2x2 f32|f16x2
cvt rn relu? : f16x2 e4m3x2|e5m2x2
cvt pack sat : u16|s16 s32
cvt pack sat : u8|s8|u4|s4|u2|s2 s32 b32

ld READ : MEMORY|b128
ld READ v2 : MEMORY
ld READ v4 : NARROW
ld READ_ONLY : MEMORY|b128
ld READ_ONLY v2 : MEMORY
ld READ_ONLY v4 : NARROW
ld volatile AHEAD? global|SHARED? : MEMORY|b128
ld volatile AHEAD? global|SHARED? v2 : MEMORY
ld volatile AHEAD? global|SHARED? v4 : NARROW
ld relaxed|acquire SCOPE COMMON : MEMORY|b128
ld relaxed|acquire SCOPE COMMON v2 : MEMORY
ld relaxed|acquire SCOPE COMMON v4 : NARROW
ld mmio relaxed sys global? : MEMORY
ldu global? : MEMORY
ldu global? v2 : MEMORY
ldu global? v4 : NARROW
st WRITE : MEMORY|b128
st WRITE v2 : MEMORY
st WRITE v4 : NARROW
st volatile global|SHARED? : MEMORY|b128
st volatile global|SHARED? v2 : MEMORY
st volatile global|SHARED? v4 : NARROW
st relaxed|release SCOPE COMMON : MEMORY|b128
st relaxed|release SCOPE COMMON v2 : MEMORY
st relaxed|release SCOPE COMMON v4 : NARROW
st mmio relaxed sys global? : MEMORY
8.1 st weak? ASYNC : b32|b64|WORD|REAL
8.1 st weak? ASYNC v2 : b32|b64|WORD|REAL
8.1 st weak? ASYNC v4 : b32|u32|s32|f32
atom ATOM add : u32|s32|u64|REAL
atom ATOM add noftz : HALF|BRAIN
8.1 atom ATOM add v2|v4 : f32
8.1 atom ATOM add noftz v2|v4 : HALF|BRAIN
8.1 atom ATOM min|max noftz v2|v4 : HALF|BRAIN
8.1 atom ATOM add|min|max noftz v8 : f16|bf16
atom ATOM min|max : WORD
atom ATOM inc|dec : u32
atom ATOM LOGIC : b32|b64
atom ATOM exch : b32|b64|b128
atom ATOM cas : BITS|b128
red RED add : u32|s32|u64|REAL
red RED add noftz : HALF|BRAIN
8.1 red RED add v2|v4 : f32
8.1 red RED add noftz v2|v4 : HALF|BRAIN
8.1 red RED min|max noftz v2|v4 : HALF|BRAIN
8.1 red RED add|min|max noftz v8 : f16|bf16
red RED min|max : WORD
red RED inc|dec : u32
red RED LOGIC : b32|b64
8.1 red relaxed cluster ASYNC inc|dec : u32
8.1 red relaxed cluster ASYNC min|max : u32|s32
8.1 red relaxed cluster ASYNC add : u32|s32|u64
8.1 red relaxed cluster ASYNC LOGIC : b32

bar cta? sync|arrive :
bar cta? red popc : u32
bar cta? red and|or : pred
bar warp sync :
barrier cta? sync|arrive aligned? :
barrier cta? red popc aligned? : u32
barrier cta? red and|or aligned? : pred
barrier cluster arrive aligned? :
8.0 barrier cluster arrive release|relaxed aligned? :
barrier cluster wait aligned? :
8.0 barrier cluster wait acquire aligned? :
membar cta|gl|sys :
membar proxy alias|async :
fence sc|acq_rel|acquire|release? SCOPE :
fence proxy alias|async|async::global|async::shared::cta|async::shared::cluster :
8.0 fence proxy async global|SHARED :
8.3 fence proxy tensormap::generic release|acquire SCOPE :
8.6 fence proxy async::generic release|acquire sync_restrict::shared::cta|sync_restrict::shared::cluster cluster :
8.6 fence release|acquire sync_restrict::shared::cta|sync_restrict::shared::cluster cluster :
8.0 fence mbarrier_init release cluster :
shfl sync up|down|bfly|idx : b32
vote sync all|any|uni : pred
vote sync ballot : b32
match sync any|all : b32|b64
redux sync add|min|max : u32|s32
redux sync LOGIC : b32
activemask : b32
nanosleep : u32
alloca|stacksave|stackrestore : u32|u64

tex MIPMAP? FLAT v4 : TEXEL s32|f32
tex MIPMAP? FLAT v2 : f16x2 s32|f32
tex MIPMAP? CUBE v4 : TEXEL f32
tex MIPMAP? CUBE v2 : f16x2 f32
tex base? 2dms|a2dms v4 : TEXEL s32
tex base? 2dms|a2dms v2 : f16x2 s32
tld4 r|g|b|a 2d|a2d|CUBE v4 : f32|u32|s32 f32
txq EXTENT|ENUMERATED|array_size|num_mipmap_levels|num_samples : b32
txq normalized_coords|force_unnormalized_coords|filter_mode|addr_mode_0|addr_mode_1|addr_mode_2 : b32
txq level EXTENT : b32
suq EXTENT|ENUMERATED|array_size|memory_layout : b32
suld b FLAT ca|cg|cs|cv? v2|v4? trap|clamp|zero : b8|BITS
sust b FLAT wb|cg|cs|wt? v2|v4? trap|clamp|zero : b8|BITS
sust p FLAT v2|v4? trap|clamp|zero : b32

mma sync aligned m8n8k4 row|col row|col : f16 f16 f16 f16
mma sync aligned m8n8k4 row|col row|col : f32 f16 f16 f16|f32
mma MMA ROUNDED? m8n8k4|m16n8k4|m16n8k8|m16n8k16 : f64 f64 f64 f64
mma MMA m16n8k8|m16n8k16 : f16 f16 f16 f16
mma MMA m16n8k8|m16n8k16 : f32 f16 f16 f32
mma MMA m16n8k8|m16n8k16 : f32 bf16 bf16 f32
mma MMA m16n8k4|m16n8k8 : f32 tf32 tf32 f32
8.4 mma MMA m16n8k32 : f32 e4m3|e5m2 e4m3|e5m2 f32
8.7 mma MMA m16n8k32 : f16 e4m3|e5m2 e4m3|e5m2 f16
8.7 mma MMA m16n8k16 : f16 e4m3|e5m2 e4m3|e5m2 f16
8.7 mma MMA m16n8k16 : f32 e4m3|e5m2 e4m3|e5m2 f32
mma MMA m8n8k16|m16n8k16|m16n8k32 satfinite? : s32 u8|s8 u8|s8 s32
mma MMA m8n8k32|m16n8k32|m16n8k64 satfinite? : s32 u4|s4 u4|s4 s32
mma MMA m8n8k128|m16n8k128|m16n8k256 and|xor popc : s32 b1 b1 s32
mma SPARSE m16n8k16|m16n8k32 : f16 f16 f16 f16
8.5 mma ORDERED m16n8k16|m16n8k32 : f16 f16 f16 f16
mma SPARSE m16n8k16|m16n8k32 : f32 f16 f16 f32
8.5 mma ORDERED m16n8k16|m16n8k32 : f32 f16 f16 f32
mma SPARSE m16n8k16|m16n8k32 : f32 bf16 bf16 f32
8.5 mma ORDERED m16n8k16|m16n8k32 : f32 bf16 bf16 f32
mma SPARSE m16n8k8|m16n8k16 : f32 tf32 tf32 f32
8.5 mma ORDERED m16n8k8|m16n8k16 : f32 tf32 tf32 f32
mma SPARSE m16n8k32|m16n8k64 satfinite? : s32 u8|s8 u8|s8 s32
8.5 mma ORDERED m16n8k32|m16n8k64 satfinite? : s32 u8|s8 u8|s8 s32
8.4 mma SPARSE m16n8k64 : f32 e4m3|e5m2 e4m3|e5m2 f32
8.5 mma ORDERED m16n8k64 : f32 e4m3|e5m2 e4m3|e5m2 f32
ldmatrix sync aligned m8n8 x1|x2|x4 trans? shared|shared::cta? : b16
stmatrix sync aligned m8n8 x1|x2|x4 trans? shared|shared::cta? : b16
movmatrix sync aligned m8n8 trans : b16
prefetch global|local? L1|L2 :
prefetch global? L2::evict_last|L2::evict_normal :
8.0 prefetch const|param? tensormap :
prefetchu L1 :
createpolicy fractional PRIORITY L2::evict_first|L2::evict_unchanged? : b64
createpolicy range global? PRIORITY L2::evict_first|L2::evict_unchanged? : b64
createpolicy cvt L2 : b64
applypriority global? L2::evict_normal :
discard global? L2 :
griddepcontrol wait|launch_dependents :
setmaxnreg inc|dec sync aligned : u32
pmevent mask? :

wmma load a|b sync aligned row|col TILE WMMA_SPACE? : f16|bf16|u8|s8
wmma load a|b sync aligned row|col m16n16k8 WMMA_SPACE? : tf32
wmma load a|b sync aligned row|col m8n8k4 WMMA_SPACE? : f64
wmma load a sync aligned row m8n8k32 WMMA_SPACE? : u4|s4
wmma load b sync aligned col m8n8k32 WMMA_SPACE? : u4|s4
wmma load a sync aligned row m8n8k128 WMMA_SPACE? : b1
wmma load b sync aligned col m8n8k128 WMMA_SPACE? : b1
wmma load c sync aligned row|col TILE WMMA_SPACE? : f16|f32|s32
wmma load c sync aligned row|col m16n16k8 WMMA_SPACE? : f32
wmma load c sync aligned row|col m8n8k4 WMMA_SPACE? : f64
wmma load c sync aligned row|col m8n8k32|m8n8k128 WMMA_SPACE? : s32
wmma store d sync aligned row|col TILE WMMA_SPACE? : f16|f32|s32
wmma store d sync aligned row|col m16n16k8 WMMA_SPACE? : f32
wmma store d sync aligned row|col m8n8k4 WMMA_SPACE? : f64
wmma store d sync aligned row|col m8n8k32|m8n8k128 WMMA_SPACE? : s32
wmma WMMA TILE : f16|f32 f16|f32
wmma WMMA TILE : f32 bf16 bf16 f32
wmma WMMA TILE satfinite? : s32 u8 u8 s32
wmma WMMA TILE satfinite? : s32 s8 s8 s32
wmma WMMA m16n16k8 : f32 tf32 tf32 f32
wmma WMMA ROUNDED? m8n8k4 : f64 f64 f64 f64
wmma mma sync aligned row col m8n8k32 satfinite? : s32 u4 u4 s32
wmma mma sync aligned row col m8n8k32 satfinite? : s32 s4 s4 s32
wmma mma and|xor popc sync aligned row col m8n8k128 : s32 b1 b1 s32

mbarrier init|inval shared|shared::cta? : b64
mbarrier arrive|arrive_drop noComplete? ARRIVE : b64
mbarrier arrive|arrive_drop expect_tx? release|relaxed? cta|cluster? SHARED? : b64
8.0 mbarrier expect_tx|complete_tx relaxed? cta|cluster? SHARED? : b64
mbarrier test_wait|try_wait parity? acquire|relaxed? cta|cluster? shared|shared::cta? : b64
mbarrier pending_count : b64
cp async ca|cg shared|shared::cta global L2::cache_hint? AHEAD? :
cp async commit_group|wait_group|wait_all :
cp async mbarrier arrive noinc? shared|shared::cta? : b64
8.0 cp async bulk shared::cluster global multicast::cluster? BULK :
8.6 cp async bulk shared::cta global BULK :
8.0 cp async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes :
8.0 cp async bulk global shared::cta cp_mask? BULK_OUT :
8.0 cp async bulk commit_group :
8.0 cp async bulk wait_group read? :
8.0 cp async bulk prefetch L2 global L2::cache_hint? :
8.0 cp async bulk tensor DIMENSION shared::cluster global TILED? multicast::cluster? BULK :
8.6 cp async bulk tensor DIMENSION shared::cta global TILED? BULK :
8.0 cp async bulk tensor DIMENSION global shared::cta TILED? BULK_OUT :
8.0 cp async bulk prefetch tensor DIMENSION L2 global TILED? L2::cache_hint? :
8.0 cp reduce async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes add : u32|s32|u64
8.0 cp reduce async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes min|max : u32|s32
8.0 cp reduce async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes inc|dec : u32
8.0 cp reduce async bulk shared::cluster shared::cta mbarrier::complete_tx::bytes LOGIC : b32
8.0 cp reduce async bulk global shared::cta BULK_OUT add : u32|s32|u64|REAL
8.0 cp reduce async bulk global shared::cta BULK_OUT add noftz : f16|bf16
8.0 cp reduce async bulk global shared::cta BULK_OUT min|max : WORD|f16|bf16
8.0 cp reduce async bulk global shared::cta BULK_OUT inc|dec : u32
8.0 cp reduce async bulk global shared::cta BULK_OUT LOGIC : b32|b64
8.0 cp reduce async bulk tensor DIMENSION global shared::cta add|min|max|inc|dec|and|or|xor TILED? BULK_OUT :
8.3 tensormap replace tile MAP_ADDRESS_AND_SIZES|MAP_KINDS global|shared::cta? : b1024 b32|b64
8.3 tensormap cp_fenceproxy global shared::cta tensormap::generic release SCOPE sync aligned :
)";

}  // namespace fikit::sim::ptx
