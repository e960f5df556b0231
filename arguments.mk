# A user's arguments to make: they are quoted for the shells of recipes, and unknown words are refused before anything
# is built. Included by the Makefile.

# Quotes a text as one word for a recipe's shell, whatever it contains; and each word of a text.
quoted   = '$(subst ','\'',$(1))'
each_quoted = $(foreach word,$(1),$(call quoted,$(word)))
,       := ,

# $(call known,VARIABLE,NAMES): each word of VARIABLE must be one of the names.
known    = $(foreach word,$($(1)),$(if $(filter $(subst %,\%,$(word)),$(2)),,$(error $(1) is '$(word)'; it takes: $(2))))
# $(call whole,VARIABLE): empty, or one whole number.
without_digits = $(subst 0,,$(subst 1,,$(subst 2,,$(subst 3,,$(subst 4,,$(subst 5,,$(subst 6,,$(subst 7,,$(subst 8,,$(subst 9,,$(1)))))))))))
whole    = $(if $(or $(call without_digits,$($(1))),$(word 2,$($(1)))),$(error $(1) is '$($(1))'; it takes a whole number))

# --- targets -----------------------------------------------------------------------------------------------------------

# Targets that help lists, and those that a recipe calls. Names of files have a slash or a dot.
TARGETS := $(if $(MAKECMDGOALS),$(shell sed -n 's/^\([a-z][a-z -]*\):.*\#\# .*/\1/p' Makefile labs/course/course.mk library/install.mk))
CALLED  := linked-tests fuzz-programs
begins   = $(filter $(1)%,$(TARGETS))
ends     = $(foreach target,$(TARGETS),$(if $(filter $(target)%,$(1)),$(target)))
holds    = $(foreach target,$(TARGETS),$(if $(findstring $(1),$(target)),$(target)))
near     = $(strip $(or $(call begins,$(1)),$(strip $(call ends,$(1))),$(call holds,$(1))))
unknown  = $(error There is no target '$(1)'; $(if $(call near,$(1)),near it: $(sort $(call near,$(1))),make help lists all))
$(foreach goal,$(filter-out $(TARGETS) $(CALLED),$(MAKECMDGOALS)),$(if $(findstring /,$(goal))$(findstring .,$(goal)),,$(call unknown,$(goal))))

# --- variables: each checked only for targets that use it, since the environment may have the name, too --------------

asked    = $(filter $(1),$(MAKECMDGOALS))
$(call known,SAN,asan ubsan tsan fuzz)
$(if $(call asked,bench-dp-vs-ddp accuracy recipes),$(call known,DEVICE,cpu cuda))
$(if $(call asked,soak),$(call whole,SOAK_RUNS))
$(if $(call asked,plan-check),$(call whole,ROUNDS)$(call known,MODELS,deep wide gpt))
$(if $(call asked,fuzz),$(call whole,MINUTES))
$(if $(call asked,test test-long linked-tests soak asan ubsan tsan),$(foreach room,$(filter-out *,$(ROOMS)),$(if $(wildcard tests/$(room)/test_*.c),,\
    $(error ROOMS is '$(room)'; it takes: $(sort $(patsubst tests/%/,%,$(dir $(wildcard tests/*/test_*.c))))))))
LABS    := $(foreach conf,$(wildcard labs/[0-9][0-9]-*/lab.conf),$(firstword $(subst -, ,$(patsubst labs/%/lab.conf,%,$(conf)))))
$(if $(call asked,lab labs grade report lab-figures lab-pictures class class-check course-check),$(call known,LAB,$(LABS)))
$(if $(call asked,grade),$(call whole,SEED))
$(if $(call asked,course-check),$(call whole,RUNS)$(call known,PARTS,handout sheet reference forms cheats stubs bugs entries changed_tree))
$(if $(call asked,class-check),$(call whole,DRAW))
# A chip's number, as in nvcc's sm_90 and sm_90a.
$(foreach chip,$(CUDA_ARCH),$(if $(call without_digits,$(chip:%a=%)),$(error CUDA_ARCH is '$(chip)'; it takes numbers such as 80 or 90a)))
