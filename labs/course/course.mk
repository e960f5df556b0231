# The course: labs, their grader, what a student gets. Included by the Makefile.

# Set in a handout: where the reference programs lie, which the tree can then not build.
-include labs/handout.mk

LAB        ?= $(sort $(foreach conf,$(wildcard labs/[0-9][0-9]-*/lab.conf),$(firstword $(subst -, ,$(patsubst labs/%/lab.conf,%,$(conf))))))
CODE       ?= .
# Half-written code has things that nothing uses yet.
LOOSE      := -Wno-unused-function -Wno-unused-parameter -Wno-unused-variable -Wno-unused-but-set-variable -Wno-unused-label
COURSE_ENV  = BUILD=$(BUILD) CC='$(CC)' COURSE_CPPFLAGS='$(CPPFLAGS)' COURSE_CFLAGS='$(CSTD) -O2 -g $(WARN) $(LOOSE) -ffp-contract=off -pthread' \
    COURSE_LIB=$(or $(COURSE_REFERENCE:%=%/liblockstep.a),$(LIB)) COURSE_LIBS='$(LDLIBS)' COURSE_OBJ=$(BUILD)/obj COURSE_REFERENCE=$(COURSE_REFERENCE)

.PHONY: lab labs grade handout class course-check
grade: $(PROGRAMS) ## judge what is written for labs [LAB=03 CODE=folder with the files SEED=]
	@$(COURSE_ENV) labs/course/grade.sh $(call quoted,$(CODE)) $(BUILD)/labs $(LAB)

course-check: $(PROGRAMS) ## the labs, their graders and their planted bugs [LAB=03 RUNS=20]
	@$(COURSE_ENV) RUNS=$(RUNS) labs/course/check.sh $(LAB)
