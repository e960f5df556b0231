# Builds the tests, the CPU's CUDA and the fuzzers. Included by the Makefile, whose targets run them.

ROOMS      ?= *
TEST_SRC   := $(wildcard $(ROOMS:%=tests/%/test_*.c))
TEST_LIB   := $(filter-out $(wildcard tests/*/test_*.c),$(wildcard tests/*/*.c))
programs_of = $(foreach test,$(1),$(BUILD)/tests/$(basename $(notdir $(test))))
# TESTS='test_steps test_comm' on the command line: only these.
ifeq ($(origin TESTS),command line)
override TESTS := $(notdir $(TESTS))
TEST_SRC   := $(foreach test,$(TESTS),$(or $(filter %/$(subst %,\%,$(test)).c,$(TEST_SRC)),\
    $(error TESTS is '$(test)'; it takes names of tests/*/test_*.c$(if $(filter-out *,$(ROOMS)), in $(ROOMS)), such as $(notdir $(call programs_of,$(wordlist 1,2,$(TEST_SRC)))))))
endif
TEST_SRC   := $(filter-out $(if $(HAVE_report),,%/test_course_report.c %/test_course_report_parts.c),$(TEST_SRC))
# Long tests are built and started first, so that none of them runs alone at the end.
LONG_SRC   := $(foreach test,$(file <tests/long_first),$(filter %/$(test).c,$(TEST_SRC)))
TEST_SRC   := $(LONG_SRC) $(filter-out $(LONG_SRC),$(TEST_SRC))
# The tests to run: `make test` leaves those of tests/long to `make test-long`, unless ROOMS or TESTS is given.
LONG       := $(filter test_%,$(file <tests/long))
LATER      := $(if $(filter filefile,$(origin ROOMS)$(origin TEST_SRC)),$(if $(filter override,$(origin TESTS)),,$(filter $(LONG:%=\%/%.c),$(TEST_SRC))))
TESTED_SRC := $(filter-out $(if $(call asked,test linked-tests),$(LATER)),$(TEST_SRC))
override TESTS := $(call programs_of,$(TESTED_SRC))
# `make asan FAST=1`, `make tsan FAST=1`: rooms without the long tests, and for tsan the tests with several threads that
# share memory.
SLOW_asan  := $(LONG) $(filter test_%,$(file <tests/slow_under_asan))
FAST_asan  := $(filter-out $(SLOW_asan:%=\%/%.c),$(wildcard $(foreach room,base checkpoint comm cuda data ddp_procs device dp_threads fuzz kernels \
    launch nn optim programs replay report seam trace train,tests/$(room)/test_*.c)))
FAST_tsan  := $(wildcard tests/data/test_*.c tests/device/test_*.c tests/dp_threads/test_*.c tests/parallel/test_shuffle.c \
    $(foreach test,comm comm_calls comm_failures comm_faults crowd,tests/comm/test_$(test).c))
TEST_BASE  := $(BUILD)/tests/libls_tests.so
# Debug information is only in the test's own file, unless a sanitizer needs lines or TEST_STRIP is empty.
TEST_STRIP ?= $(if $(SAN),,-Wl,-S)
TEST_OPT   ?= $(OPT:-O2=-O0) # of tests/*/test_*.c, which take longer to compile than to run

# tests/fuzz/targets is a level deeper than the files linked into every test: only test_corpora and `make fuzz` need it.
FUZZ_SRC   := $(filter-out $(if $(HAVE_report),,%/report.c),$(wildcard tests/fuzz/targets/*.c))
FUZZ_OBJ   := $(FUZZ_SRC:%.c=$(BUILD)/obj/%.o)
FUZZ_NAMES := $(filter-out $(if $(HAVE_report),,report),$(patsubst tests/fuzz/corpus/%.tar.gz,%,$(wildcard tests/fuzz/corpus/*.tar.gz)))

# --- the CPU's CUDA ----------------------------------------------------------------------------------------------------

# The same sources for `make test`, with tests/cuda_on_cpu, which implements cudart, cuBLAS and NCCL on the CPU.
FAKE_DIR   := $(BUILD)/tests/cuda_on_cpu
FAKE_SRC   := $(wildcard tests/cuda_on_cpu/*.cpp)
FAKE_LIB   := $(FAKE_DIR)/libcuda_on_cpu.so
FAKES      := $(FAKE_LIB) $(FAKE_DIR)/ls_cuda.so $(FAKE_DIR)/ls_nccl.so $(MPI_PLUGIN:$(BUILD)/lib/%=$(FAKE_DIR)/%)
FAKE_OBJ   := $(patsubst %,$(BUILD)/obj/fake/%.o,$(basename $(CUDA_C) $(NCCL_C)) $(CUDA_CU) $(FAKE_SRC))
FAKE_FLAGS := -fPIC -Itests/cuda_on_cpu/include
# fmaf as an instruction if the CPU has it, with the same bits.
FAKE_FMA   := $(if $(filter x86_64,$(TARGET)),$(shell grep -qsw fma /proc/cpuinfo && echo -mfma))

$(BUILD)/obj/fake/%.o: %.c $(FLAGS)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) $(CPPFLAGS) $(FAKE_FLAGS) $(CFLAGS) -c $< -o $@

# -O1: compiled in two thirds of the time, and not slower.
$(CUDA_CU:%=$(BUILD)/obj/fake/%.o): OPT := $(OPT:-O2=-O1)
$(BUILD)/obj/fake/%.cu.o: %.cu $(FLAGS)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CXX) -I. $(FAKE_FLAGS) $(CXXFLAGS) $(FAKE_FMA) -x c++ -c $< -o $@

# The compiler uses standard.h.gch when it includes standard.h, of which there is a copy in the same folder.
FAKE_STD   := $(BUILD)/obj/fake/standard.h
$(FAKE_STD).gch: tests/cuda_on_cpu/standard.h $(FLAGS)
	@mkdir -p $(@D)
	@cp $< $(FAKE_STD)
	$(say)
	$(Q)$(CXX) $(FAKE_FLAGS) $(CXXFLAGS) -MF /dev/null -x c++-header $< -o $@

$(BUILD)/obj/fake/%.cpp.o: %.cpp $(FLAGS) | $(FAKE_STD).gch
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CXX) -include $(FAKE_STD) -I. $(FAKE_FLAGS) $(CXXFLAGS) -c $< -o $@

$(FAKE_LIB): $(FAKE_SRC:%=$(BUILD)/obj/fake/%.o)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CXX) -shared $(BUILD_ID) -Wl,-soname,$(@F) $(SAN_$(SAN)) $^ -ldnnl -ldl -pthread -o $@

$(FAKE_DIR)/ls_cuda.so: $(CUDA_C:%.c=$(BUILD)/obj/fake/%.o) $(CUDA_CU:%=$(BUILD)/obj/fake/%.o) $(FAKE_LIB)
	$(say)
	$(Q)$(CXX) -shared $(BUILD_ID) -Wl,-soname,$(@F) $(SAN_$(SAN)) $^ -Wl,-rpath,'$$ORIGIN' -pthread -o $@

$(FAKE_DIR)/ls_nccl.so: $(NCCL_C:%.c=$(BUILD)/obj/fake/%.o) $(FAKE_DIR)/ls_cuda.so $(FAKE_LIB)
	$(say)
	$(Q)$(CXX) -shared $(SAN_$(SAN)) $^ -Wl,-rpath,'$$ORIGIN' -pthread -o $@

# These are not fakes, but a program finds all plug-ins in one folder.
$(FAKE_DIR)/ls_mpi.so $(FAKE_DIR)/ls_pmix: $(FAKE_DIR)/%: $(BUILD)/lib/%
	@mkdir -p $(@D)
	$(Q)ln -sf ../../lib/$* $@
$(BUILD)/tests/test_mpi $(BUILD)/tests/test_calibrate: | $(filter %/ls_mpi.so %/ls_pmix,$(FAKES))

# --- tests ---------------------------------------------------------------------------------------------------------------

$(TEST_SRC:%.c=$(BUILD)/obj/%.o): OPT := $(TEST_OPT)
# Separate, so that a change of TEST_OPT or TEST_STRIP does not rebuild the rest.
TEST_FLAGS := $(BUILD)/obj/tests/flags
$(eval $(call noted,$(TEST_FLAGS),$(TEST_OPT) $(TEST_STRIP)))
$(TEST_SRC:%.c=$(BUILD)/obj/%.o) $(TEST_BASE): $(TEST_FLAGS)
# These fill and compare buffers for seconds.
$(BUILD)/obj/tests/comm/test_allreduce.o $(addprefix $(BUILD)/obj/tests/kernels/test_,conv2d.o batchnorm.o): OPT := $(OPT:-O0=-O1)
# Built like kernels/cpu/variant: vectorised, since it walks through floats for seconds.
$(BUILD)/obj/tests/kernels/test_exponential.o: OPT := -O3 -fno-math-errno -fno-trapping-math
$(BUILD)/obj/tests/cuda/%.o $(BUILD)/obj/tests/kernels/%.o: CPPFLAGS += -Itests/cuda_on_cpu/include

# Code of all tests, linked once: a test then links in half the time.
# gold, if available, links a test in a third of the time. Checked when the first test is linked.
TEST_LD     = $(eval TEST_LD := $(if $(SAN),,$(shell printf 'int main(void) { return 0; }\n' | $(CC) -x c - -fuse-ld=gold -lz -o /dev/null 2>/dev/null && echo -fuse-ld=gold)))$(TEST_LD)
$(TEST_BASE): $(TEST_LIB:%.c=$(BUILD)/obj/%.o) $(LIB)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) -shared $(LDFLAGS) $(TEST_LD) $(TEST_STRIP) -Wl,-soname,$(@F) -Wl,-Bsymbolic-functions $(filter-out $(LIB) $(TEST_FLAGS),$^) $(LINKED) $(LDLIBS) -lcmocka -o $@

# test_node copies itself to another folder, and so is linked with the objects instead of the shared library.
base_of     = $(if $(filter %/test_node.c,$(1)),$(TEST_LIB:%.c=$(BUILD)/obj/%.o),$(TEST_BASE))
define test_rule
$(BUILD)/tests/$(basename $(notdir $(1))): $(BUILD)/obj/$(1:.c=.o) $(call base_of,$(1)) $(if $(filter tests/cuda/%,$(1)),$(FAKE_LIB))
	@mkdir -p $$(@D)
	$$(say)
	$(Q)$(CC) $(LDFLAGS) $$(TEST_LD) -Wl,--as-needed $$^ $(LIB) $$(LDLIBS) -lcmocka -Wl,-rpath,'$$$$ORIGIN:$$$$ORIGIN/cuda_on_cpu' -o $$@
	$$(name_it)
endef
$(foreach test,$(TEST_SRC),$(eval $(call test_rule,$(test))))

$(BUILD)/tests/test_corpora: $(FUZZ_OBJ)
$(BUILD)/tests/test_corpora $(BUILD)/tests/test_course_report_parts: $(REPORT_OBJ)
$(BUILD)/tests/test_corpora $(BUILD)/tests/test_course_report_parts: LDLIBS += $(REPORT_LIBS)

$(BUILD)/tests/jumping_clock.so: tests/programs/preload/jumping_clock.c
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) $(CPPFLAGS) $(CSTD) -O2 -Wall -Wextra -Wpedantic -Werror -fPIC -shared $< -o $@
$(BUILD)/tests/test_clock_jumps: | $(BUILD)/tests/jumping_clock.so

$(BUILD)/hostile_attacker: $(BUILD)/obj/tests/hostile/attacker/attacker.o $(LIB)
	$(say)
	$(Q)$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@

define fuzz_rule
$(BUILD)/fuzz_$(1): tests/fuzz/entry/entry.c $(FUZZ_OBJ) $(REPORT_OBJ) $(LIB)
	$$(say)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -DFUZZ_TARGET=fuzz_$(1) $$^ $(LDLIBS) $(REPORT_LIBS) -o $$@
endef
$(foreach name,$(FUZZ_NAMES),$(eval $(call fuzz_rule,$(name))))

DEPENDS += $(patsubst %,$(BUILD)/obj/fake/%.d,$(CUDA_C:.c=) $(NCCL_C:.c=) $(CUDA_CU:=) $(FAKE_SRC:=))
DEPENDS += $(FUZZ_OBJ:.o=.d) $(TEST_SRC:%.c=$(BUILD)/obj/%.d) $(TEST_LIB:%.c=$(BUILD)/obj/%.d)
