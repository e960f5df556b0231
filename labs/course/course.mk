# The course: labs, their grader, what a student gets. Included by the Makefile. CODE: the folder with the student's files, in the tree's
# places; the tree itself where nothing is said.

# Set in a handout: where the reference's programs lie, which such a tree cannot build.
-include labs/handout.mk

LAB        ?= $(sort $(foreach conf,$(wildcard labs/[0-9][0-9]-*/lab.conf),$(firstword $(subst -, ,$(patsubst labs/%/lab.conf,%,$(conf))))))
CODE       ?= .
# Half-written code has things that nothing uses yet.
LOOSE      := -Wno-unused-function -Wno-unused-parameter -Wno-unused-variable -Wno-unused-but-set-variable
COURSE_ENV  = BUILD=$(BUILD) CC='$(CC)' COURSE_CPPFLAGS='$(CPPFLAGS)' COURSE_CFLAGS='$(CSTD) -O2 -g $(WARN) $(LOOSE) -ffp-contract=off -pthread' \
    COURSE_LIB=$(or $(COURSE_REFERENCE:%=%/liblockstep.a),$(LIB)) COURSE_LIBS='$(LDLIBS)' COURSE_OBJ=$(BUILD)/obj COURSE_REFERENCE=$(COURSE_REFERENCE) ORACLE=$(or $(COURSE_REFERENCE),$(BUILD))

.PHONY: lab labs report report-check lab-figures grade handout handout-check class class-check course-check
# What the labs' lab.conf name: programs for the student's code, planted ones, and those that figures and runs call.
LAB_CONFS  := $(foreach lab,$(LAB),$(wildcard labs/$(lab)-*/lab.conf))
LAB_NAMES  := $(if $(LAB_CONFS),$(shell sed -nE 's/^program //p; s/^planted [^ ]+ ([^ ]+) .*/\1/p' $(LAB_CONFS); grep -ohE '[$$]ORACLE/[a-z_]+' $(LAB_CONFS) | sed 's/.*[/]//'))
LAB_NEEDS  := $(filter $(addprefix $(BUILD)/,$(LAB_NAMES)),$(PROGRAMS))

# The first build takes minutes. It says how many files there are, and counts also where no terminal is.
ifneq ($(filter lab,$(MAKECMDGOALS)),)
LAB_FILES  := $(LIB_OBJ) $(LIB) $(LAB_NEEDS) $(patsubst %.c,$(BUILD)/obj/%.o,$(foreach program,$(LAB_NEEDS),$(filter %/$(notdir $(program)).c,$(MAINS))))
LAB_MISSING := $(words $(filter-out $(wildcard $(LAB_FILES)),$(LAB_FILES)))
say         = $(if $(V)$(QUIET),,@$(eval BUILT += x)$(if $(MAKE_TERMOUT),printf '  building: file %d of %d\r' $(words $(BUILT)) $(LAB_MISSING),$(if $(filter 1 %00 %25 %50 %75,$(words $(BUILT))),echo '  building: file $(words $(BUILT)) of $(LAB_MISSING)')))
endif

lab: $(LAB_NEEDS) ## predict, run and compare: a lab with your code [LAB=03 CODE=folder with the files PREDICT=skip]
	@$(if $(filter file,$(origin LAB)),echo 'Which lab? make lab LAB=01; labs/README.md has the list' >&2; exit 2)
	@$(COURSE_ENV) PREDICT=$(PREDICT) labs/course/lab.sh $(call quoted,$(CODE)) $(BUILD)/labs $(LAB)

grade: $(PROGRAMS) ## judge what is written for labs [LAB=03 CODE=folder with the files SEED=]
	@$(COURSE_ENV) SEED=$(SEED) labs/course/grade.sh $(call quoted,$(CODE)) $(BUILD)/labs $(LAB) || [ $$? -ne 2 ] # points missing are no error of make's

report: $(or $(COURSE_REFERENCE),$(BUILD))/course_report ## what you did in the labs, as one HTML page to read or print [LAB=03 CODE=folder with the files OUT=file STUDENT=name LS_LANG=zh]
	@$(COURSE_ENV) labs/course/report.sh $(call quoted,$(CODE)) $(BUILD)/labs $(call quoted,$(or $(OUT),$(BUILD)/report.html)) $(LAB)

report-check: $(BUILD)/course_report ## a made-up report in a headless Chromium, on narrow and wide screens and on A4
	@BUILD=$(BUILD) tests/report_in_browser.sh

labs: ## every lab's runs with the reference
	@$(MAKE) lab LAB="$(LAB)" PREDICT=skip

lab-figures: $(PROGRAMS) ## write the numbers in the labs' sheets, from their own commands [LAB=03]
	@$(COURSE_ENV) labs/course/figures.sh write $(LAB)

handout: $(PROGRAMS) ## the tree that a student gets [OUT=folder]
	@$(COURSE_ENV) labs/course/handout.sh $(call quoted,$(or $(OUT),$(BUILD)/handout))

handout-check: $(PROGRAMS) ## build a handout and run its tests, which pass or are not written yet (six minutes)
	@rm -rf $(BUILD)/handout-check
	@$(COURSE_ENV) labs/course/handout.sh $(BUILD)/handout-check
	@$(MAKE) -C $(BUILD)/handout-check BUILD=build test

class: $(PROGRAMS) ## grade a class, to CSV [SUBMISSIONS=folder with one folder a student LAB=03]
	@exec env $(COURSE_ENV) labs/course/class.sh $(call quoted,$(SUBMISSIONS)) $(BUILD)/labs $(LAB)

class-check: $(PROGRAMS) ## a class of thirty made-up students, of whom every verdict must be right [LAB= DRAW=1]
	@$(COURSE_ENV) DRAW=$(call quoted,$(DRAW)) labs/course/class_check.sh $(LAB)

course-check: $(PROGRAMS) ## the labs, their graders and their planted bugs [LAB=03 RUNS=20 BUGS='no_*' FORMS= PARTS='handout stubs']
	@$(COURSE_ENV) RUNS=$(RUNS) BUGS=$(call quoted,$(BUGS)) FORMS=$(call quoted,$(FORMS)) PARTS=$(call quoted,$(PARTS)) labs/course/check.sh $(LAB)
