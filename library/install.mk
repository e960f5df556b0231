# `make install` and `make uninstall`. The installed tree can be moved as a whole: programs and library find other files
# relative to themselves.

PREFIX     ?= /usr/local
DESTDIR    ?=
INSTALLED  := $(addprefix $(BUILD)/,dp_train ddp_train ddprun flight replay plan fit_tn calibrate)
VERSION    := $(shell sed -n 's/^.define LS_VERSION "\(.*\)"/\1/p' common/base/version.h)
SHIPPED    := data/digits labs/replay/nodes labs/replay/workloads plots examples
AT          = $(call quoted,$(DESTDIR)$(PREFIX))
# The files below PREFIX that `make uninstall` removes.
INSTALLED_FILES = $(INSTALLED:$(BUILD)/%=bin/%) $(INSTALLED:$(BUILD)/%=share/man/man1/%.1) \
    $(INSTALLED:$(BUILD)/%=share/bash-completion/completions/%) include/lockstep.h lib/pkgconfig/lockstep.pc \
    lib/liblockstep.a lib/liblockstep.so lib/$(SONAME) lib/lockstep share/lockstep

.PHONY: install uninstall install-check

install: $(INSTALLED) $(PLUGINS) $(MPI_PLUGIN) $(BUILD)/lib/liblockstep.so $(BUILD)/lib/liblockstep.a ## programs, library, manuals [PREFIX=/usr/local DESTDIR=]
	@$(EMULATED) library/install.sh $(AT) $(BUILD) $(call quoted,$(VERSION)) $(SONAME) $(call quoted,$(LDLIBS)) programs $(INSTALLED) plugins $(PLUGINS) $(MPI_PLUGIN) shipped $(SHIPPED)

uninstall: ## take away what `make install` has put there [PREFIX=/usr/local DESTDIR=]
	@cd $(AT) && rm -rf $(INSTALLED_FILES)

install-check: all ## install into an empty folder, move it, and use it from there as a stranger would
	+@library/check.sh $(BUILD)
