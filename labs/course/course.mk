# The course: labs, their grader, the handout. Included by the Makefile. CODE: the folder with the student's files, with
# the tree's paths; by default the tree itself.

# Set in a handout: the folder of the reference's programs, which such a tree cannot build.
-include labs/handout.mk

LAB        ?= $(sort $(LABS))
CODE       ?= .
# Unfinished code has unused names.
LOOSE      := -Wno-unused-function -Wno-unused-parameter -Wno-unused-variable -Wno-unused-but-set-variable
COURSE_ENV  = BUILD=$(BUILD) CC=$(call quoted,$(CC)) COURSE_CPPFLAGS=$(call quoted,$(CPPFLAGS)) COURSE_CFLAGS='$(CSTD) -O2 -g $(WARN) $(LOOSE) -ffp-contract=off -pthread' \
    COURSE_VARIANTS='$(foreach isa,$(VARIANTS),$(call variant_flags,$(isa))|)' COURSE_LIB=$(or $(COURSE_REFERENCE:%=%/liblockstep.a),$(LIB)) COURSE_LIBS=$(call quoted,$(LDLIBS)) COURSE_OBJ=$(BUILD)/obj COURSE_REFERENCE=$(COURSE_REFERENCE) ORACLE=$(HAS)

# The programs that make lab and make grade need: those that lab.conf and the lab's scripts name, or in a handout their
# mains, which are linked with the student's functions. All others in a handout are the reference's.
LAB_WORDS  := $(if $(call asked,lab grade),$(shell grep -ohE '[a-z][a-z_]*' $(foreach lab,$(LAB),$(wildcard labs/$(lab)-*/lab.conf labs/$(lab)-*/*.sh)) | sort -u))
LAB_MAINS  := $(foreach main,$(MAINS),$(if $(filter $(basename $(notdir $(main))),$(LAB_WORDS)),$(main)))
LAB_NEEDS  := $(if $(COURSE_REFERENCE),$(LAB_MAINS:%.c=$(BUILD)/obj/%.o),$(foreach main,$(LAB_MAINS),$(BUILD)/$(basename $(notdir $(main)))))
HAS        := $(or $(COURSE_REFERENCE),$(BUILD))
ifneq ($(call asked,lab grade report),)
WANTED     := $(LAB_NEEDS) $(if $(call asked,grade),$(HAS)/grade) $(if $(call asked,report),$(HAS)/course_report)
endif

.PHONY: lab labs report report-check lab-figures lab-pictures grade handout handout-check class class-check course-check
lab: $(LAB_NEEDS) ## predict, run and compare: a lab with your code [LAB=03 CODE=folder with the files PREDICT=skip]
	@$(if $(filter file,$(origin LAB)),echo 'Which lab? make lab LAB=01; labs/README.md has the list' >&2; exit 2)
	@$(end_of_line)exec env $(COURSE_ENV) PREDICT=$(call quoted,$(PREDICT)) labs/course/lab.sh $(call quoted,$(CODE)) $(BUILD)/labs $(call each_quoted,$(LAB))

grade: $(LAB_NEEDS) $(HAS)/grade ## judge what is written for labs [LAB=03 CODE=folder with the files SEED=]
	@$(end_of_line)$(COURSE_ENV) SEED=$(call quoted,$(SEED)) labs/course/grade.sh $(call quoted,$(CODE)) $(BUILD)/labs $(call each_quoted,$(LAB)) || [ $$? -ne 2 ] # missing points are not an error of make

ifeq ($(MISSING),)
report: $(HAS)/course_report ## what you did in the labs, as one HTML page to read or print [LAB=03 CODE=folder with the files OUT=file.html STUDENT=name LS_LANG=zh]
	@$(end_of_line)$(COURSE_ENV) labs/course/report.sh $(call quoted,$(CODE)) $(BUILD)/labs $(call quoted,$(or $(OUT),$(BUILD)/report.html)) $(call each_quoted,$(LAB))

report-check: $(BUILD)/course_report ## a made-up report in a headless Chromium, on narrow and wide screens and on A4
	@BUILD=$(BUILD) tests/report_in_browser.sh

handout: $(PROGRAMS) ## the tree that a student gets [OUT=folder]
	@$(end_of_line)$(COURSE_ENV) labs/course/handout.sh $(call quoted,$(or $(OUT),$(BUILD)/handout))

handout-check: $(PROGRAMS) ## build a handout and run its tests, which pass or are not written yet (six minutes)
	@rm -rf $(BUILD)/handout-check
	@$(end_of_line)$(COURSE_ENV) labs/course/handout.sh $(BUILD)/handout-check
	@$(MAKE) -C $(BUILD)/handout-check BUILD=build ROOMS='*' test

course-check: $(PROGRAMS) ## the labs, their graders and their planted bugs [LAB=03 RUNS=20 BUGS='no_*' FORMS= PARTS='handout stubs']
	@$(end_of_line)$(COURSE_ENV) RUNS=$(call quoted,$(RUNS)) BUGS=$(call quoted,$(BUGS)) FORMS=$(call quoted,$(FORMS)) PARTS=$(call quoted,$(PARTS)) labs/course/check.sh $(call each_quoted,$(LAB))
endif

labs: ## every lab's runs with the reference
	@$(MAKE) lab LAB=$(call quoted,$(LAB)) PREDICT=skip

lab-figures: $(PROGRAMS) ## write the numbers in the labs' sheets, from their own commands [LAB=03]
	@$(end_of_line)$(COURSE_ENV) labs/course/figures.sh write $(call each_quoted,$(LAB))

lab-pictures: $(PROGRAMS) ## draw the pictures in the labs' sheets, from the data that their commands print [LAB=03]
	@$(end_of_line)$(COURSE_ENV) labs/course/pictures.sh $(call each_quoted,$(LAB))

class: $(PROGRAMS) ## grade a class, to CSV [SUBMISSIONS=folder with one folder a student LAB=03]
	@$(end_of_line)exec env $(COURSE_ENV) labs/course/class.sh $(call quoted,$(SUBMISSIONS)) $(BUILD)/labs $(call each_quoted,$(LAB))

class-check: $(PROGRAMS) ## a class of sixty made-up students, attackers among them, of whom every verdict must be right [LAB= DRAW=1]
	@$(end_of_line)$(COURSE_ENV) DRAW=$(call quoted,$(DRAW)) labs/course/class_check.sh $(call each_quoted,$(LAB))
