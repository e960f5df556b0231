# Table 6: how far replayed and predicted step times are from what this machine measured, row by row:
#     gnuplot -c plots/tables_machine.gp build/results/tables.csv build/results
# writes build/results/tables_machine.png and .svg. Without table 6 in the file nothing is drawn. The parts of T2
# (kernels, host, ...), some of which are next to nothing, are left out.

csv    = ARGC >= 1 ? ARG1 : "build/results/tables.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
if (system("test -r '" . csv . "' && echo yes") ne "yes") {
    printerr "there is no " . csv . "; run: make tables"
    exit status 1
}
load "plots/style.gp"
if (system("grep -c '^\"6 ' '" . csv . "'") + 0 == 0) { exit status 0 }
rows = read_titled_csv(csv) \
    . " | awk -F, 'NR == 1 || (/^\"6 / && $3 != \"\" && $6 != \"\" && !/^\"6 of T2:/)'"
file = folder . "/tables_machine"
heading = "This machine: replayed step times against measured ones"
subtitle = "replayed: traces of this machine, as recorded, and predictions from one device's trace " \
    . "on node this_machine; reference: measured on its CPU devices"
load "plots/deviations.gp"
