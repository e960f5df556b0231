# lockstep: one network trained by one thread per device and by one process per device. `make help` lists the targets.

include arguments.mk
# CC determines the target machine. For another machine than this one (CC=aarch64-linux-gnu-gcc) BUILD is a separate
# folder, tests run under qemu, and libraries are this system's for that machine (Debian's multiarch) or those below
# SYSROOT=FOLDER.
MACHINE := $(or $(shell $(CC) -dumpmachine 2>/dev/null),$(patsubst %-gcc,%,$(filter %-gcc,$(notdir $(firstword $(CC))))))
TARGET  := $(firstword $(subst -, ,$(MACHINE)))
CROSS   := $(filter-out $(shell uname -m),$(TARGET))
ifeq ($(and $(CROSS),$(SYSROOT),$(origin SYSROOT)),command line)
override CC := $(CC) --sysroot=$(call quoted,$(SYSROOT))
endif
BUILD   ?= build$(addprefix /,$(CROSS))
ifeq ($(if $(CROSS),$(origin AR)),default)
AR      := $(shell $(CC) -print-prog-name=ar)
endif
# make itself splits names at blanks, and passes most of these to a shell.
ifneq ($(words $(BUILD)),1)
$(error BUILD is '$(BUILD)'; it takes one name without blanks)
endif
$(foreach letter,' " \ ` $$ & ; | < > * ? [ ] ! { } ( ),$(if $(findstring $(letter),$(BUILD)),$(error BUILD is '$(BUILD)'; a name without $(letter) can be built in)))
SAN     ?=
# The C++ compiler of CC's family, for nvcc's host code and for tests/cuda_on_cpu.
ifeq ($(origin CXX),default)
CXX     := $(if $(findstring clang,$(CC)),$(subst clang,clang++,$(CC)),$(if $(findstring -gcc,$(CC)),$(subst -gcc,-g++,$(CC)),g++))
endif
CORES    := $(shell nproc 2>/dev/null || echo 1)
MAKEFLAGS += --no-print-directory
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(CORES)
endif

# --- packages found on this machine ----------------------------------------------------------------------------------
# The compiler checks for all headers in one run, so a ✓ means that the compiler finds the header, not only that such a
# file exists.
HEADERS    := stddef.h oneapi/dnnl/dnnl.h hwloc.h cjson/cJSON.h zlib.h cmocka.h md4c.h expat.h
FOUND      := $(subst ",,$(shell printf '\043if __has_include(<%s>)\n"%s"\n\043endif\n' $(foreach header,$(HEADERS),$(header) $(header)) | $(CC) -E -P -x c - 2>/dev/null))
# A header that a cross compiler finds may be this machine's, so the library must also link.
LIBRARIES  := $(if $(CROSS),$(shell for name in c dnnl hwloc cjson z cmocka md4c expat; do $(CC) -shared -nostdlib -l$$name -o /dev/null 2>/dev/null && echo $$name; done))
has_header  = $(if $(filter $(1),$(FOUND)),$(if $(CROSS),$(if $(filter $(2),$(LIBRARIES)),yes),yes))
# nvcc and mpicc build for this machine only. nvcc is searched in PATH, under CUDA_HOME, and in the usual place; its
# folder determines CUDA_HOME.
NVCC      := $(if $(CROSS),,$(firstword $(shell command -v nvcc 2>/dev/null; ls $(call quoted,$(CUDA_HOME)/bin/nvcc) /usr/local/cuda/bin/nvcc 2>/dev/null)))
CUDA_HOME ?= $(or $(patsubst %/bin/nvcc,%,$(filter %/bin/nvcc,$(realpath $(NVCC)))),/usr/local/cuda)

# name : header or program : Debian package (the CPU's part needs these packages)
HAVE_compiler := $(call has_header,stddef.h,c)
HAVE_cxx     := $(shell printf '\043if !__has_include(<vector>)\n\043error\n\043endif\n' | $(CXX) -E -x c++ - >/dev/null 2>&1 && echo yes)
HAVE_oneDNN  := $(call has_header,oneapi/dnnl/dnnl.h,dnnl)
HAVE_hwloc   := $(call has_header,hwloc.h,hwloc)
HAVE_cJSON   := $(call has_header,cjson/cJSON.h,cjson)
HAVE_zlib    := $(call has_header,zlib.h,z)
HAVE_cmocka  := $(call has_header,cmocka.h,cmocka)
HAVE_gnuplot := $(if $(shell command -v gnuplot 2>/dev/null),yes)
NVCC_RELEASE := $(if $(NVCC),$(shell $(call quoted,$(NVCC)) --version 2>/dev/null | sed -n 's/.*release \([0-9]*\).*/\1/p'))
HAVE_nvcc    := $(if $(NVCC_RELEASE),$(shell [ $(NVCC_RELEASE) -ge 12 ] && echo yes))
CUDA_LINK    := $(foreach word,-L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib -Wl$(,)-rpath$(,)$(CUDA_HOME)/lib64:$(CUDA_HOME)/lib,$(call quoted,$(word)))
# Checked as it is used, without compiling: the header is found, and a shared library can be linked with NCCL.
HAVE_NCCL    := $(shell printf '\043if !__has_include(<nccl.h>) || !__has_include(<cuda_runtime.h>)\n\043error\n\043endif\n' | \
    $(CC) -I$(call quoted,$(CUDA_HOME)/include) -E -x c - >/dev/null 2>&1 && $(CC) -shared -nostdlib $(CUDA_LINK) -lnccl -o /dev/null 2>/dev/null && echo yes)
HAVE_md4c    := $(call has_header,md4c.h,md4c)
HAVE_expat   := $(call has_header,expat.h,expat)
HAVE_report  := $(and $(HAVE_md4c),$(HAVE_expat))
HAVE_MPI     := $(if $(CROSS),,$(if $(shell command -v mpicc 2>/dev/null),yes))
# The plug-in is for Open MPI 4: with 5 MPI_Init fails ("Not found"), under ddprun and under mpirun.
OPEN_MPI_5   := $(if $(HAVE_MPI),$(findstring Open MPI 5,$(shell mpicc --showme:version 2>&1)))
HAVE_PMIX    := $(if $(HAVE_MPI),$(if $(OPEN_MPI_5),,$(shell pkg-config --exists pmix 2>/dev/null && echo yes)))
DEVIL        := /usr/share/dictd/devil.dict.dz
HAVE_text    := $(if $(wildcard $(DEVIL)),yes)

PACKAGE_compiler := $(if $(filter cc gcc,$(CC)),gcc libc6-dev,$(patsubst %-gcc,gcc-%,$(notdir $(firstword $(CC)))))
PACKAGE_cxx    := $(if $(filter c++ g++,$(CXX)),g++,$(patsubst %-g++,g++-%,$(notdir $(firstword $(CXX)))))
DEBIAN_aarch64 := arm64
FOREIGN        := $(if $(CROSS),:$(or $(DEBIAN_$(CROSS)),$(CROSS)))
PACKAGE_oneDNN := libdnnl-dev$(FOREIGN)
PACKAGE_hwloc  := libhwloc-dev$(FOREIGN)
PACKAGE_cJSON  := libcjson-dev$(FOREIGN)
PACKAGE_zlib   := zlib1g-dev$(FOREIGN)
PACKAGE_cmocka := libcmocka-dev$(FOREIGN)
PACKAGE_gnuplot := gnuplot-nox fonts-dejavu-core
PACKAGE_md4c   := libmd4c-dev$(FOREIGN)
PACKAGE_expat  := libexpat1-dev$(FOREIGN)

USE_nvcc := for GPUs: $(BUILD)/lib/ls_cuda.so$(if $(HAVE_nvcc),,; $(if $(CROSS),this machine builds it for itself only,needs CUDA 12 or 13)$(if $(NVCC_RELEASE), and found $(NVCC_RELEASE)))
USE_NCCL := for a GPU per rank: $(BUILD)/lib/ls_nccl.so
USE_MPI  := for CPU devices on several hosts: $(BUILD)/lib/ls_mpi.so$(if $(HAVE_PMIX),,; $(if $(CROSS),this machine builds it for itself only,needs $(if $(OPEN_MPI_5),Open MPI 4 and found 5,packages openmpi-bin libopenmpi-dev libpmix-dev))); and for comparison in make bench-comm
USE_text := for --model gpt, real English: $(DEVIL), package dict-devil
USE_md4c := for make report: package $(PACKAGE_md4c)
USE_expat := for make report: package $(PACKAGE_expat)

NEEDED   := compiler cxx oneDNN hwloc cJSON zlib cmocka gnuplot
OPTIONAL := md4c expat text nvcc NCCL MPI
# make report's program needs two more libraries; without them it is neither built nor tested; nothing else needs them.
NEEDED   += $(if $(call asked,setup report report-check handout handout-check course-check),md4c expat)
$(if $(HAVE_report),,$(if $(call asked,test),$(info test: md4c or expat is not here (packages $(PACKAGE_md4c) $(PACKAGE_expat)): the test of make report is left out)))
# These targets draw no pictures, and gpu-check skips its tests if cmocka is missing: machines with GPUs are often
# offline.
ifeq ($(MAKECMDGOALS),gpu-check)
NEEDED   := $(filter-out cmocka gnuplot,$(NEEDED))
$(if $(HAVE_cmocka),,$(info gpu-check: cmocka is not here (package $(PACKAGE_cmocka)): the tests are left out$(,) which is not a pass))
else ifneq ($(filter gpu-bundle bundle-check,$(MAKECMDGOALS)),)
NEEDED   := $(filter-out gnuplot,$(NEEDED))
endif
MISSING  := $(strip $(foreach tool,$(NEEDED),$(if $(HAVE_$(tool)),,$(PACKAGE_$(tool)))))

# --- flags -----------------------------------------------------------------------------------------------------------
CSTD     := -std=c11
WARN     := -Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes
OPT      ?= -O2
CPPFLAGS += -I. -Iinclude -D_POSIX_C_SOURCE=200809L
# One set of objects for programs and for the shared library.
PIC      := -fPIC -fno-semantic-interposition
# Debug information for lines and functions; DEBUG=-g adds variables, and a fifth to the build time.
DEBUG    ?= -g1
CFLAGS   += $(CSTD) $(OPT) $(PIC) $(DEBUG) -ffile-prefix-map="$(CURDIR)"=. $(WARN) -ffp-contract=off -pthread -MMD -MP
LDLIBS   += -ldnnl -lhwloc -lcjson -lz -lm -ldl -pthread

SAN_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SAN_ubsan := -fsanitize=undefined -fno-sanitize-recover=all
SAN_tsan := -fsanitize=thread -fno-omit-frame-pointer
SAN_fuzz := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CFLAGS   += $(SAN_$(SAN))
# Plug-ins use the program's own copy of everything below labs/: all of it is linked, and --export-dynamic exports it.
# From labs/ a program has only the objects that it uses.
# The build id lets ranks tell whether all of them run the same program: so it must not depend on the folder
# (-ffile-prefix-map).
BUILD_ID  = -Wl,--build-id
LDFLAGS  += $(SAN_$(SAN)) -Wl,--export-dynamic $(BUILD_ID)
LINKED    = $(filter-out $(BUILD)/obj/labs/%,$(LIB_OBJ)) $(LIB)
CXXFLAGS += -std=c++17 $(OPT) -g1 -Wall -Wextra -Werror -Wshadow -ffp-contract=off -pthread -MMD -MP $(SAN_$(SAN))

# `make V=1` shows the commands. Otherwise a build counts its files (`say` is called for each): on a terminal in one
# line, elsewhere in a line every 50. The total is the number of missing files: all of them in a fresh tree. For
# `make test` tests/run.sh counts them (COUNT_TO: its pipe).
Q        := $(if $(V),,@)
BUILT    :=
# The requested programs, and the missing files of them and of their prerequisites.
WANTED    = $(or $(filter $(BUILD)/%,$(MAKECMDGOALS)),$(PROGRAMS))
missing   = $(filter-out $(wildcard $(BUILD)/* $(1)),$(1))
files_of  = $(1) $(if $(filter $(PROGRAMS),$(1)),$(LIB) $(LIB_OBJ)) $(foreach main,$(MAINS),$(if $(filter %/$(basename $(notdir $(main))),$(1)),$(main:%.c=$(BUILD)/obj/%.o)))
# A file takes 0.25 to 0.9 s of a core, as measured on two machines: the slower one counts.
minutes   = $(shell echo $$(( (9 * $(1) / 10 / $(CORES) + 59) / 60 )))
announce  = $(eval TO_BUILD := $(call missing,$(call files_of,$(WANTED))))echo '  building$(if $(word 20,$(TO_BUILD)), $(words $(TO_BUILD)) files$(,) up to $(call minutes,$(words $(TO_BUILD))) min,: file 1) (V=1 shows the commands)';
so_far    = building: file $(words $(BUILT))$(if $(word $(words $(BUILT)),$(TO_BUILD)), of $(words $(TO_BUILD)))
say       = $(if $(V),,@$(if $(COUNT_TO),echo built-a-file >&$(COUNT_TO),$(eval BUILT += x)$(if $(word 2,$(BUILT)),,$(announce)) $(if $(MAKE_TERMOUT),printf '  $(so_far)\r',$(if $(filter %00 %50,$(words $(BUILT))),echo '  $(so_far)',:))))
# Ends the line of the counter before the next program's output.
end_of_line = $(if $(MAKE_TERMOUT),$(if $(BUILT),echo;))

# --- sources: files are found by their folders -----------------------------------------------------------------------
MAINS      := dp_threads/dp_train.c ddp_procs/ddp_train.c ddp_procs/flight.c ddp_procs/launch/ddprun.c \
    $(addprefix labs/bench/,dp_vs_ddp/bench_dp_vs_ddp.c memory/bench_memory.c gpt/bench_gpt.c comm/bench_comm.c backends/backends.c thread_vs_process/thread_vs_process.c launch/bench_launch.c \
    mkdigits/mkdigits.c gpu_check/gpu_check.c) \
    $(addprefix labs/replay/,replay/replay.c plan/plan.c fit_tn/fit_tn.c calibrate/calibrate.c tables/tables.c) \
    labs/course/grade/grade.c labs/course/report/course_report.c labs/01-ranks/hello/hello.c labs/02-samples/who_gets/who_gets.c \
    labs/09-memory/who_holds/who_holds.c labs/25-missing/who_hangs/who_hangs.c labs/25-missing/visits/visits.c
MAINS      := $(filter-out $(if $(HAVE_report),,%/course_report.c),$(wildcard $(MAINS)))
PROGRAMS   := $(foreach main,$(MAINS),$(BUILD)/$(basename $(notdir $(main))))
BENCH_MPI  := $(if $(HAVE_MPI),$(BUILD)/bench_mpi)
LIB_SRC    := $(filter-out $(MAINS) labs/bench/peers/% labs/course/report/%,$(wildcard common/*/*.c kernels/*.c kernels/cpu/*.c dp_threads/*.c ddp_procs/*.c ddp_procs/*/*.c library/*.c labs/*/*/*.c))
LIB        := $(BUILD)/liblockstep.a
# Not in the library, since only these objects need further libraries: objects and libraries of one program and its
# tests.
REPORT_OBJ := $(if $(HAVE_report),$(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(MAINS),$(wildcard labs/course/report/*.c))))
REPORT_LIBS := $(if $(HAVE_report),-lmd4c -lexpat)
$(BUILD)/course_report: $(REPORT_OBJ)
$(BUILD)/course_report: LDLIBS += $(REPORT_LIBS)

# kernels/cpu/variant/*.c are built once for each instruction set and chosen at run time (kernels/cpu/select.c).
ifeq ($(TARGET),x86_64)
VARIANTS   := v2 v3 v4
else
VARIANTS   := plain
endif
ISA_v2     := -march=x86-64-v2
ISA_v3     := -march=x86-64-v3
ISA_v4     := -march=x86-64-v4 -mprefer-vector-width=512
# Under a sanitizer with the usual flags: its checks prevent vectorisation, which takes -O3 four times as long to find
# out.
variant_flags = $(if $(SAN),$(OPT),-O3) $(ISA_$(1)) -fno-math-errno -fno-trapping-math -DLS_ISA=$(1)
VARIANT_SRC := $(wildcard kernels/cpu/variant/*.c)
VARIANT_OBJ := $(foreach isa,$(VARIANTS),$(VARIANT_SRC:kernels/cpu/variant/%.c=$(BUILD)/obj/kernels/cpu/variant/$(isa)/%.o))

# --- CUDA: plug-ins, opened only when a GPU is asked for ----------------------------------------------------------------
CUDA_C     := $(wildcard common/device/cuda/*.c kernels/cuda/*.c)
CUDA_CU    := $(wildcard kernels/cuda/*.cu)
NCCL_C     := $(wildcard common/comm/nccl/*.c)
MPI_C      := $(filter-out %/ls_pmix.c,$(wildcard common/comm/mpi/*.c))
MPI_PLUGIN := $(if $(SAN),,$(if $(HAVE_PMIX),$(BUILD)/lib/ls_mpi.so $(BUILD)/lib/ls_pmix))
PLUGINS    := $(if $(SAN),,$(if $(HAVE_nvcc),$(BUILD)/lib/ls_cuda.so $(if $(HAVE_NCCL),$(BUILD)/lib/ls_nccl.so)))
# A bundle is for one kind of chip, by default Hopper.
ifneq ($(filter gpu-bundle bundle-check,$(MAKECMDGOALS)),)
CUDA_ARCH  ?= 90
endif
# CUDA_ARCH=90: only that chip. Otherwise binaries for Turing, Ampere (and Ada) and Hopper, and PTX for later chips.
ifdef CUDA_ARCH
GENCODE    := $(foreach arch,$(CUDA_ARCH),-gencode arch=compute_$(arch),code=sm_$(arch))
else
GENCODE    := $(foreach arch,75 80 90,-gencode arch=compute_$(arch),code=sm_$(arch)) -gencode arch=compute_90,code=compute_90
endif
NVCC_HOST  ?= $(CXX)
NVCCFLAGS  := -std=c++17 -O3 -lineinfo --threads 2 -fmad=false -Xptxas -v -Werror all-warnings -Xcompiler -fPIC,-Wall,-Wextra,-Werror -MMD -MP

# $(call noted,FILE,TEXT): writes TEXT to FILE if it differs, so that FILE's dependents are rebuilt when TEXT changes.
define noted
$(1): anew
	@mkdir -p $$(@D)
	@printf '%s\n' $(call quoted,$(2)) | cmp -s - $$@ || printf '%s\n' $(call quoted,$(2)) >$$@
endef
anew: ;

# Every object depends on the flags: when they change, the build folder is rebuilt. Sorted, since a recursive make may
# have words of the environment twice; without the tree's folder, which no object contains.
FLAGS      := $(BUILD)/obj/flags
$(eval $(call noted,$(FLAGS),$(sort $(subst "$(CURDIR)",,$(CC) $(CXX) $(CPPFLAGS) $(CFLAGS) $(CXXFLAGS) $(LDFLAGS) $(LDLIBS) $(foreach isa,$(VARIANTS),$(call variant_flags,$(isa)))))))

# The tests, and the objects that they are linked with.
include tests/build.mk

LIB_OBJ    := $(LIB_SRC:%.c=$(BUILD)/obj/%.o) $(VARIANT_OBJ)
C_FILES     = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' 2>/dev/null || find . -name '*.[ch]')

.DEFAULT_GOAL := all
.PHONY: cross-check hostile test-hosts every-float fuzz fuzz-programs all help setup test test-long linked-tests soak bench-dp-vs-ddp bench-memory bench-gpt bench-comm bench-launch gpu-check rounding gpu-bundle bundle-check bundle-allowed anew tables claims calibrate plan-check plots accuracy recipes pytorch-check check-layers format format-check tidy warnings asan ubsan tsan clean
.DELETE_ON_ERROR:

# --- targets for users -----------------------------------------------------------------------------------------------

help: ## this list, and what was found on this machine
	@echo 'make TARGET, with'
	@awk -f labs/course/help.awk Makefile labs/course/course.mk library/install.mk
	@echo 'Found (CC=$(CC), BUILD=$(BUILD)):'
	@$(foreach tool,$(NEEDED),echo '  $(if $(HAVE_$(tool)),✓,✗) $(tool)$(if $(HAVE_$(tool)),, (needed: package $(PACKAGE_$(tool))))';)
	@$(foreach tool,$(OPTIONAL),echo '  $(if $(HAVE_$(tool)),✓,✗) $(tool) ($(USE_$(tool)))';)

setup: ## install what is missing (as root), or print the line that does
ifeq ($(MISSING),)
	@echo 'Everything that is needed is here.$(if $(HAVE_text),, A real text for --model gpt, which nothing needs: sudo apt-get install dict-devil)'
else
	@if [ -n '$(CROSS)' ]; then \
	    printf '%s\n' 'Missing to build for $(CROSS): $(MISSING). Please run:' \
	        '  sudo dpkg --add-architecture $(FOREIGN::%=%) && sudo apt-get update && sudo apt-get install -y $(MISSING)' \
	        'or unpack these packages below a folder, and name it with SYSROOT=FOLDER.' >&2; exit 1; \
	elif [ "$$(id -u)" -ne 0 ]; then \
	    printf '%s\n' 'Missing: $(MISSING). Please run:' '  sudo apt-get install -y $(MISSING)' >&2; exit 1; \
	fi; \
	echo 'Installing $(MISSING) (a minute or so)'; \
	said=$$({ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(MISSING); } 2>&1) || { \
	    printf '%s\n' "$$said" | tail -n 2 >&2; \
	    echo 'apt-get could not install them: see the lines above, and whether this machine is online.' >&2; exit 1; \
	}
endif

# If a package is missing, these targets run setup once, and then start again, so that all checks are repeated.
ifneq ($(MISSING),)
ifdef LS_SET_UP
$(error Still missing after make setup: $(MISSING))
endif
.NOTPARALLEL:
all test test-long cross-check test-hosts soak rounding bench-dp-vs-ddp bench-memory bench-gpt bench-comm bench-launch gpu-check gpu-bundle bundle-check plots tables claims calibrate accuracy recipes pytorch-check report report-check handout handout-check course-check: setup
	@$(MAKE) LS_SET_UP=1 $@

else

all: $(PROGRAMS) $(PLUGINS) $(MPI_PLUGIN) ## build every program, and the plug-ins for GPUs and Open MPI where CUDA and MPI are found [CUDA_ARCH=90: for that chip]
	@$(end_of_line)
	@$(if $(CROSS),echo '  built for $(CROSS) in $(BUILD); the plug-ins for GPUs and Open MPI are left out: nvcc and mpicc build for this machine only')

# Programs run as soon as they are linked, while others are built: tests/run.sh reads their names from a pipe (9), to
# which they are written when they are linked, or at the end if they already existed. make's own output bypasses it (8).
# make uses lower numbers for its jobs.
# Other requested targets (make all test) are made first: two makes must not build the same library.
test: | $(filter-out test,$(MAKECMDGOALS)) ## build and run the tests, each program under a deadline; test-long has the others [ROOMS='comm data', TESTS='test_steps test_comm': only those; V=1: a line for each program]
	+@{ { $(MAKE) linked-tests COUNT_TO=9 9>&1 >&8 || echo build-failed; } | \
	    LS_PLUGINS=$(call quoted,$(abspath $(FAKE_DIR))) LS_TEST_TIMES=$(BUILD)/tests/times $(EMULATED) tests/run.sh $(words $(TESTS)) 8>&-; } 8>&1$(if $(LATER), && \
	    echo 'make test-long has $(words $(LATER)) programs more')

test-long: ## build and run the tests of tests/long, which take long by nature [ROOMS='parallel': only those of them; FAST=1: of up to ten CPU-seconds]
	+@$(MAKE) test TESTS=$(call quoted,$(filter $(basename $(notdir $(TEST_SRC))),$(if $(FAST),$(shell awk '/^test_/ && $$2 <= 10 { print $$1 }' tests/long),$(LONG))))

# Runs a command that starts programs for another machine.
EMULATED   := $(if $(CROSS),$(if $(SYSROOT),QEMU_LD_PREFIX=$(call quoted,$(SYSROOT))) tests/emulated.sh $(CROSS))

# Tests that open no plug-in do not wait for them.
PLAIN_SRC  := $(filter $(foreach room,base checkpoint comm data device dp_threads launch nn optim parallel report train,tests/$(room)/%),$(TESTED_SRC))
OTHER_SRC  := $(filter tests/cuda/%,$(TESTED_SRC)) $(filter-out $(PLAIN_SRC) tests/cuda/%,$(TESTED_SRC))
# Alternates objects and programs, so that make does not leave all linking for the end: object 4, program 1, object 5,
# program 2, ...
in_turn     = $(filter-out x,$(subst @, ,$(join $(patsubst %.c,$(BUILD)/obj/%.o@,$(1)),x x x $(call programs_of,$(1)))))

linked-tests: $(LIB) $(PROGRAMS) $(call in_turn,$(PLAIN_SRC)) $(if $(strip $(OTHER_SRC)),$(FAKES) $(call in_turn,$(OTHER_SRC)))
	@printf '%s\n' $(filter-out $(NAMED),$(TESTS)) >&9

ifneq ($(filter linked-tests,$(MAKECMDGOALS)),)
NAMED      :=
name_it     = @$(eval NAMED += $@)echo $@ >&9
$(TESTS): | $(PROGRAMS)
$(call programs_of,$(OTHER_SRC)): | $(FAKES)
$(TEST_SRC:%.c=$(BUILD)/obj/%.o) $(FAKE_OBJ): | $(LIB)
endif

CROSS_CC   ?= aarch64-linux-gnu-gcc
CROSS_BUILD := $(BUILD)/$(firstword $(subst -, ,$(notdir $(CROSS_CC))))
cross-check: $(BUILD)/hello $(BUILD)/dp_train ## build everything for aarch64 and train there by qemu: DP = DDP, and with the same matrix multiply the same bits as here [CROSS_CC= SYSROOT=]
	+@$(MAKE) CC=$(call quoted,$(CROSS_CC)) BUILD=$(CROSS_BUILD) all
	@tests/cross.sh $(BUILD) $(CROSS_BUILD) $(call quoted,$(CC)) $(call quoted,$(CROSS_CC)) $(call quoted,$(SYSROOT))

soak: $(PROGRAMS) $(TESTS) $(if $(strip $(OTHER_SRC)),$(FAKES)) ## every test program 20 times on a busy machine [SOAK_RUNS= ROOMS= TESTS='test_steps test_comm']
	@LS_PLUGINS=$(call quoted,$(abspath $(FAKE_DIR))) tests/soak.sh $(BUILD)/soak $(TESTS)

# Not part of `make test`: it takes a quarter of an hour, and its cases are drawn again each time.
hostile: $(PROGRAMS) $(BUILD)/hostile_attacker ## kills, also in grids, mismatches, attacks, damaged files and odd options at random [HOSTILE_SECONDS=700 HOSTILE_SEED= AREAS='kills files']
	@tests/hostile/hostile.sh $(BUILD) $(call each_quoted,$(AREAS))

# Between hosts the fake NCCL is used (tests/cuda_on_cpu).
test-hosts: $(PROGRAMS) $(MPI_PLUGIN) $(FAKES) ## jobs on two and four hosts, made of namespaces (root): links cut, slowed, silent; hosts that die [CASES=fast, or 'ddp silence'; TORCHRUN=]
	@TORCHRUN=$(call quoted,$(TORCHRUN)) tests/hosts/hosts.sh $(BUILD) $(call each_quoted,$(CASES))

every-float: $(BUILD)/tests/test_exponential ## exp and GELU of all floats beside double precision, ten minutes
	@LS_EVERY_FLOAT=1 $<

RESULTS    := $(BUILD)/results
BENCH_WHAT := $(if $(MODEL),--models=$(call quoted,$(MODEL))) $(if $(BATCH),--batch=$(call quoted,$(BATCH))) $(if $(N),--n=$(call quoted,$(N))) $(if $(ALL),--all)
BENCH_ARGS := $(BENCH_WHAT) $(if $(PER_DEVICE_BATCH),--per-device-batch=$(call quoted,$(PER_DEVICE_BATCH))) $(if $(DEVICE),--device=$(call quoted,$(DEVICE)))

# With DEVICE=cuda the plug-ins are built first, if nvcc is found.
FOR_DEVICE := $(if $(filter cuda,$(DEVICE)),$(PLUGINS))

# The first signal ends these programs, even if only make gets it, which signals only the recipe's shell (exec). The
# pictures are drawn even if the bench fails because DP and DDP disagree.
STOPPABLE  := labs/bench/shared/stoppable.sh
DRAW_AFTER := labs/bench/shared/draw_after.sh $(RESULTS)
# Measured on two cores, during other work.
lasts       = @echo '$@: $(1) with the default settings on two cores; the first signal (Ctrl-C) ends it' >&2

bench-dp-vs-ddp: $(PROGRAMS) $(FOR_DEVICE) ## step time and speed-up of both modes [MODEL= BATCH= PER_DEVICE_BATCH= N= DEVICE= ALL=1]
	$(call lasts,one to two minutes)
	@exec $(DRAW_AFTER) dp_vs_ddp $(or $(COURSE_REFERENCE),$(BUILD))/bench_dp_vs_ddp $(BENCH_ARGS) --out=$(RESULTS)

# MEMORY_ARGS: further options of bench_memory.
bench-memory: $(PROGRAMS) ## what checkpointing, ZeRO save and cost beside plain DDP: memory, step time, bytes sent [MODEL= BATCH= N= ALL=1 MEMORY_ARGS=]
	$(call lasts,three to six minutes)
	@exec $(DRAW_AFTER) memory $(or $(COURSE_REFERENCE),$(BUILD))/bench_memory $(BENCH_WHAT) $(call each_quoted,$(MEMORY_ARGS)) --out=$(RESULTS)

# GPT_ARGS: further options of bench_gpt; PYTHON: a Python with PyTorch.
bench-gpt: $(PROGRAMS) ## a GPT's step beside its matrix multiplies and PyTorch's, DP and DDP, attention by tiles [MODEL= BATCH= PYTHON=python3 GPT_ARGS=]
	$(call lasts,one to two minutes (with PyTorch two to six))
	@exec $(DRAW_AFTER) gpt $(or $(COURSE_REFERENCE),$(BUILD))/bench_gpt $(if $(MODEL),--model=$(call quoted,$(MODEL))) $(if $(BATCH),--batch=$(call quoted,$(BATCH))) $(if $(PYTHON),--python=$(call quoted,$(PYTHON))) $(call each_quoted,$(GPT_ARGS)) --out=$(RESULTS)

accuracy: $(PROGRAMS) $(FOR_DEVICE) ## what the models reach on held-out digits, median of five seeds [DEVICE=]
	@exec env DEVICE=$(call quoted,$(DEVICE)) labs/bench/accuracy/accuracy.sh $(BUILD)

recipes: $(PROGRAMS) $(FOR_DEVICE) ## the course's scripts, with tables and pictures [RECIPE='mlp-amp convnet' DATA=folder in MNIST's format DEVICE=]
	@exec env DEVICE=$(call quoted,$(DEVICE)) DATA=$(call quoted,$(DATA)) labs/bench/recipes/recipes.sh $(BUILD) $(RESULTS) $(call each_quoted,$(RECIPE))

# PYTHON: a Python with PyTorch, if the search does not find one.
pytorch-check: $(PROGRAMS) ## losses, schedules and scales beside PyTorch's, where it is installed [PYTHON=python3]
	@BUILD=$(BUILD) tests/pytorch/run.sh $(if $(PYTHON),$(call quoted,$(PYTHON)))

# COMM_ARGS: further options of bench_comm.
bench-comm: $(PROGRAMS) $(BENCH_MPI) $(MPI_PLUGIN) ## all-reduce and the other collectives, beside Open MPI's and gloo's [N= COMM_ARGS=]
	@exec $(DRAW_AFTER) comm $(BUILD)/bench_comm --backend=all --buffers=both --compare $(if $(N),--n=$(call quoted,$(N))) $(call each_quoted,$(COMM_ARGS)) --out=$(RESULTS)

# LAUNCH_ARGS: further options of bench_launch; TORCHRUN: a torchrun outside PATH.
bench-launch: $(PROGRAMS) ## how long jobs of 1 to 64 ranks take to start, meet and end, beside torchrun's [N= TORCHRUN= LAUNCH_ARGS=]
	$(call lasts,ten seconds (with torchrun four minutes))
	@exec $(DRAW_AFTER) launch $(BUILD)/bench_launch $(if $(N),--n=$(call quoted,$(N))) $(if $(TORCHRUN),--torchrun=$(call quoted,$(TORCHRUN))) $(call each_quoted,$(LAUNCH_ARGS)) --out=$(RESULTS)

# Tests without calls to tests/cuda_on_cpu, which also run on real GPUs (--as-needed drops the library).
GPU_TESTS  := $(foreach test,$(if $(HAVE_cmocka),walk ops large reference layers attention batchnorm conv2d fused casts half_products half_layers text optimizers scaler cuda_products cuda_training cuda_modes),$(BUILD)/tests/test_$(test))

# Rounding modes of GPUs (tests/cuda_on_cpu/include/cuda_on_cpu.h). `make test` runs some tests in some modes, this
# target all tests in all modes.
ROUNDING   := slices:2 slices:4 slices:8 place cut ulps flush slices:2,place,cut,ulps,flush slices:8,place,cut,ulps,flush
rounding: $(GPU_TESTS) $(FAKES) ## the tests that run on GPUs, on the CPU's GPU in each way that one may round, four minutes [ROUNDING='slices:8 cut,ulps']
	@for way in $(call each_quoted,$(ROUNDING)); do \
	    echo "CUDA_ON_CPU_ROUNDING=$$way"; \
	    printf '%s\n' $(GPU_TESTS) | CUDA_ON_CPU_ROUNDING=$$way LS_PLUGINS=$(call quoted,$(abspath $(FAKE_DIR))) tests/run.sh $(words $(GPU_TESTS)) || exit 1; \
	done

# GPU_ARGS: options of build/gpu_check. A test that is linked with the CPU's CUDA would not test the GPU.
gpu-check: all $(GPU_TESTS) ## tests, figures and invariants of a real GPU, in stages; without one it fails [GPU_ARGS='--budget=540 --only=peaks,rates --continue']
	@for test in $(GPU_TESTS); do \
	    ! readelf -d $$test | grep -q libcuda_on_cpu || { echo "$$test is linked with the CPU's CUDA: it does not belong into GPU_TESTS" >&2; exit 1; }; \
	done
	@LS_PLUGINS= PATH="$$PATH":$(call quoted,$(CUDA_HOME)/bin) labs/bench/gpu_check/gpu_check.sh $(BUILD) $(call each_quoted,$(GPU_ARGS)) $(GPU_TESTS)

# Bundled files keep their paths below BUILD. BUNDLED is empty if there is nothing to bundle, which bundle.sh reports.
# The course's programs are not bundled, nor those that measure cores or only read files: no check of a GPU needs them.
UNBUNDLED  := backends grade course_report hello who_gets who_holds who_hangs visits mkdigits bench_gpt bench_launch bench_memory calibrate fit_tn plan tables thread_vs_process
BUNDLED    := $(if $(PLUGINS),$(filter-out $(UNBUNDLED:%=$(BUILD)/%),$(PROGRAMS)) $(PLUGINS) $(if $(GPU_TESTS),$(TEST_BASE)) $(GPU_TESTS))

gpu-bundle: $(BUNDLED) ## a build to carry to a GPU machine that is offline: BUILD/gpu-bundle.tar.gz [CUDA_ARCH=90]
	@labs/bench/gpu_bundle/bundle.sh $(BUILD) $(call quoted,$(CUDA_ARCH)) $(BUNDLED)

bundle-check: bundle-allowed gpu-bundle $(FAKES) ## unpack the bundle in a root that has only glibc, a shell and coreutils, and run it there
	@tests/bundle.sh $(BUILD)/gpu-bundle.tar.gz $(FAKE_DIR)

bundle-allowed: # checked first, since nvcc takes minutes
	@tests/bundle.sh --allowed

calibrate: $(PROGRAMS) ## measure this machine and write it down as a node for build/replay
	@mkdir -p $(RESULTS)
	@exec $(STOPPABLE) $(BUILD)/calibrate --out=$(RESULTS)/this_machine.json

# MODELS: of deep, wide and gpt.
plan-check: $(PROGRAMS) ## build/plan's order beside the measured one, in virtual time [ROUNDS=3 MODELS='deep wide gpt']
	$(call lasts,ten minutes or more)
	@exec $(STOPPABLE) labs/replay/plan/check.sh $(BUILD) $(call quoted,$(or $(ROUNDS),3)) $(call quoted,$(or $(MODELS),deep wide gpt))

TABLE_ARGS := $(if $(TABLES),--tables=$(call quoted,$(TABLES)))
tables: $(PROGRAMS) ## published figures beside ours, measured or replayed [TABLES=1,3]
	$(call lasts,five minutes or more)
	@exec $(DRAW_AFTER) tables $(BUILD)/tables $(TABLE_ARGS) --out=$(RESULTS)

claims: $(PROGRAMS) ## what the course's notes claim, confirmed or refuted by our figures
	@exec labs/bench/claims/claims.sh $(BUILD)

# The script and the data of each figure: SCRIPT:DATA
FIGURES    := dp_vs_ddp:dp_vs_ddp memory_techniques:memory gpt_attention:gpt allreduce:comm launch:launch recipe_mlp-amp:recipe_mlp-amp recipe_convnet:recipe_convnet \
    $(patsubst plots/%.gp,%:tables,$(wildcard plots/tables_*.gp)) \
    speedup:shown/replay replay_phases:shown/replay_devices memory:shown/replay_devices overlap_bucket:shown/buckets/replay gantt:shown/gantt
# The replay for the pictures: a published network on a published machine.
SHOWN      := $(BUILD)/replay --node=dgx1-v100 --workload=resnet50 --batch=128 --quiet
SHOWN_IN   := $(RESULTS)/shown

plots: $(PROGRAMS) ## draw all pictures again, from the results in BUILD/results and from a replay
	@mkdir -p $(SHOWN_IN)/buckets
	@$(SHOWN) --n=1,2,4,8 --out=$(SHOWN_IN) >/dev/null
	@$(SHOWN) --n=4 --gantt=$(SHOWN_IN)/gantt.csv >/dev/null
	@$(SHOWN) --mode=ddp --n=2,4,8 --bucket-cap-mb=0.1,1,5,10,25,50,100 --out=$(SHOWN_IN)/buckets >/dev/null
	@for mode in dp ddp; do \
	    $(BUILD)/fit_tn --csv=$(SHOWN_IN)/replay.csv --mode=$$mode --plot=$(RESULTS)/tn_fit_$$mode.png >/dev/null || exit 1; \
	    printf '%s\n' $(RESULTS)/tn_fit_$$mode.png $(RESULTS)/tn_fit_$$mode.svg; \
	done
	@for figure in $(FIGURES); do \
	    csv=$(RESULTS)/$${figure#*:}.csv; \
	    [ -r $$csv ] || continue; \
	    LC_ALL=C.UTF-8 gnuplot -c plots/$${figure%:*}.gp $$csv $(RESULTS) 2>&1 || exit 1; \
	done

endif

include labs/course/course.mk

check-layers: ## includes point down only, and symbols are named after their room
	@tests/check_layers.sh

# RUN=1 also runs the pages' commands that are marked to be run; RUN=README.md those of that page.
.PHONY: check-docs
check-docs: ## what pages and comments name is there: files, headings, targets, options; the glossary's words [RUN=1: and run the pages' commands]
	@tests/check_terms.sh
	@tests/check_terms.sh --self-test
	@BUILD=$(BUILD) tests/check_docs.sh $(if $(RUN),--run $(call each_quoted,$(filter-out 1,$(RUN))))

.PHONY: platform-check
platform-check: ## README's commands in fresh roots of Debian releases, as root with debootstrap [RELEASES='bookworm trixie' MIRROR= ROOMS=, or none]
	@MIRROR=$(call quoted,$(MIRROR)) ROOMS=$(call quoted,$(ROOMS)) tests/platforms.sh $(BUILD) $(call each_quoted,$(RELEASES))

.PHONY: guides-check
guides-check: ## apply the patch of each page in docs/extend to a copy, and run the page's commands there [PAGE=all-reduce]
	@LS_GUIDES_MAKE='$(if $(HAVE_nvcc),,HAVE_nvcc=) LS_SET_UP=1' tests/guides.sh $(call each_quoted,$(PAGE))

format: ## lay out every source file
	@clang-format -i $(C_FILES)

format-check: ## fail if a source file is not laid out
	@clang-format --dry-run -Werror $(C_FILES) && echo 'format: $(words $(C_FILES)) files are laid out'

tidy: ## clang-tidy over every source file
	@clang-tidy --quiet $(filter-out kernels/cpu/variant/% labs/bench/peers/%,$(filter %.c,$(C_FILES))) -- $(CPPFLAGS) $(CSTD) -isystem tests/cuda_on_cpu/include
	@clang-tidy --quiet $(VARIANT_SRC) -- $(CPPFLAGS) $(CSTD) $(ISA_v3) -DLS_ISA=v3

# Warnings come from the compiler's front end, so no code is generated: for programs, plug-ins and the CPU's CUDA.
WARNED_C   := $(LIB_SRC) $(MAINS) $(REPORT_OBJ:$(BUILD)/obj/%.o=%.c) $(CUDA_C) $(NCCL_C)
warn_of     = printf '%s\n' $(2) | xargs -P $(CORES) -n 12 $(1) $(filter-out -MMD -MP,$(3)) -fsyntax-only
warnings: ## what a compiler that builds nothing here warns of: its front end over all sources but the tests' [CC=clang]
	@$(call warn_of,$(CC),$(WARNED_C),$(CPPFLAGS) $(FAKE_FLAGS) $(CFLAGS))
	@$(call warn_of,$(CXX),$(FAKE_SRC),-include tests/cuda_on_cpu/standard.h -I. $(FAKE_FLAGS) $(CXXFLAGS))
	@$(call warn_of,$(CXX),$(CUDA_CU),-I. $(FAKE_FLAGS) $(CXXFLAGS) -x c++)
	@$(foreach isa,$(VARIANTS),$(call warn_of,$(CC),$(VARIANT_SRC),$(CPPFLAGS) $(CFLAGS) $(call variant_flags,$(isa))) && )echo 'warnings: none from $(CC) in $(words $(WARNED_C) $(FAKE_SRC) $(CUDA_CU) $(VARIANT_SRC)) files'

# FAST=1: only the tests that each sanitizer checks best (tests/build.mk), built in half the time.
asan tsan ubsan: ## the tests under one sanitizer (asan: addresses, leaks and undefined behaviour) [FAST=1: where it says most; ROOMS= TESTS=]
	@LS_TEST_DEADLINE_S=600 $(MAKE) SAN=$@ BUILD=$(BUILD)/$@ $(if $(FAST),OPT='-O1 -Wno-format-truncation' TEST_OPT=-O0 TEST_SRC=$(call quoted,$(FAST_$@)),ROOMS=$(call quoted,$(ROOMS))) test

# --- fuzzing: clang's libFuzzer tests the parsers of files and of messages ------------------------------------------------

FUZZ_CC    ?= clang
MINUTES    ?= 4

fuzz: ## look for crashes of the readers with damaged input, for so long in all [MINUTES=4]
	@tests/fuzz/run.sh check $(call quoted,$(FUZZ_CC))
	@$(MAKE) CC=$(call quoted,$(FUZZ_CC)) SAN=fuzz BUILD=$(BUILD)/fuzz fuzz-programs
	@tests/fuzz/run.sh run $(BUILD)/fuzz $(MINUTES) $(FUZZ_NAMES)

fuzz-programs: $(foreach name,$(FUZZ_NAMES),$(BUILD)/fuzz_$(name))

clean: ## remove everything that was built
	rm -rf $(BUILD)

# --- rules -----------------------------------------------------------------------------------------------------------

$(BUILD)/obj/%.o: %.c $(FLAGS)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

define variant_rule
$(BUILD)/obj/kernels/cpu/variant/$(1)/%.o: kernels/cpu/variant/%.c $(FLAGS)
	@mkdir -p $$(@D)
	$$(say)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(call variant_flags,$(1)) -c $$< -o $$@
endef
$(foreach isa,$(VARIANTS),$(eval $(call variant_rule,$(isa))))

# The library's members: it is rebuilt if a file was removed.
MEMBERS    := $(BUILD)/obj/members
$(eval $(call noted,$(MEMBERS),$(LIB_OBJ)))

$(LIB): $(LIB_OBJ) $(MEMBERS)
	@rm -f $@
	$(say)
	$(Q)$(AR) rcs $@ $(LIB_OBJ)

define program_rule
$(BUILD)/$(basename $(notdir $(1))): $(BUILD)/obj/$(1:.c=.o) $(LIB)
	$$(say)
	$(Q)$(CC) $(LDFLAGS) $$(filter-out $(LIB),$$^) $(LINKED) $$(LDLIBS) -o $$@
endef
$(foreach main,$(MAINS),$(eval $(call program_rule,$(main))))

# The library for users' programs, with all objects except those of labs/.
OWN_OBJ    = $(filter-out $(BUILD)/obj/labs/%,$(LIB_OBJ))
SONAME    := liblockstep.so.0
$(BUILD)/lib/$(SONAME): $(OWN_OBJ) library/exported.map
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,$(@F) -Wl,--version-script=library/exported.map $(OWN_OBJ) $(LDLIBS) -o $@
$(BUILD)/lib/liblockstep.so: $(BUILD)/lib/$(SONAME)
	@ln -sf $(SONAME) $@
$(BUILD)/lib/liblockstep.a: $(OWN_OBJ) $(MEMBERS)
	@mkdir -p $(@D)
	@rm -f $@
	$(say)
	$(Q)$(AR) rcs $@ $(OWN_OBJ)

include library/install.mk

# -isystem: warnings in CUDA's headers are not errors of this tree.
$(BUILD)/obj/gpu/%.o: %.c $(FLAGS)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -isystem $(call quoted,$(CUDA_HOME)/include) -c $< -o $@

# nvcc's flags, and the chips that the kernels are compiled for.
CHIPS      := $(BUILD)/obj/gpu/chips
$(eval $(call noted,$(CHIPS),$(NVCC) $(NVCC_HOST) $(NVCCFLAGS) $(GENCODE)))

$(BUILD)/obj/gpu/%.cu.o: %.cu $(CHIPS)
	@mkdir -p $(@D)
	$(say)
	$(Q)kernels/cuda/compile.sh $< $(call quoted,$(NVCC)) -ccbin $(NVCC_HOST) -I. $(NVCCFLAGS) $(GENCODE) -c $< -o $@

$(BUILD)/lib/ls_cuda.so: $(CUDA_C:%.c=$(BUILD)/obj/gpu/%.o) $(CUDA_CU:%=$(BUILD)/obj/gpu/%.o)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CXX) -shared $(BUILD_ID) -Wl,-soname,$(@F) $^ $(CUDA_LINK) -lcudart -lcublas -ldl -pthread -o $@

# It uses ls_cuda.so (lane.h), which is already loaded, or which the loader finds in the same folder.
$(BUILD)/lib/ls_nccl.so: $(NCCL_C:%.c=$(BUILD)/obj/gpu/%.o) $(BUILD)/lib/ls_cuda.so
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CXX) -shared $^ $(CUDA_LINK) -Wl,-rpath,'$$ORIGIN' -lcudart -lnccl -pthread -o $@

# Also -isystem for Open MPI's and PMIx's headers.
system_headers = $(patsubst -I%,-isystem %,$(filter -I%,$(1)))
$(BUILD)/obj/mpi/%.o: %.c $(FLAGS)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC $(call system_headers,$(shell mpicc --showme:compile) $(shell pkg-config --cflags pmix)) -c $< -o $@

$(BUILD)/lib/ls_mpi.so: $(MPI_C:%.c=$(BUILD)/obj/mpi/%.o)
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) -shared $^ $(shell mpicc --showme:link) -ldl -pthread -o $@

$(BUILD)/lib/ls_pmix: $(BUILD)/obj/mpi/common/comm/mpi/ls_pmix.o
	@mkdir -p $(@D)
	$(say)
	$(Q)$(CC) $^ $(shell pkg-config --libs pmix) -pthread -o $@

$(BUILD)/bench_mpi: labs/bench/peers/bench_mpi.c
	@mkdir -p $(@D)
	$(say)
	$(Q)mpicc $(CPPFLAGS) $(CSTD) -O2 -g -Wall -Wextra $< -o $@

DEPENDS    += $(patsubst %.c,$(BUILD)/obj/mpi/%.d,$(wildcard common/comm/mpi/*.c)) $(patsubst %,$(BUILD)/obj/gpu/%.d,$(CUDA_C:.c=) $(NCCL_C:.c=) $(CUDA_CU:=))
DEPENDS    += $(LIB_OBJ:.o=.d) $(REPORT_OBJ:.o=.d) $(MAINS:%.c=$(BUILD)/obj/%.d)
-include $(DEPENDS)
# The compiler writes them. Without this rule make searches one for each, which takes most of its time.
$(DEPENDS): ;
