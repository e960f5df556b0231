# Table 6: the deviation of replayed and predicted step times from this machine's measured ones, row by row:
#     gnuplot -c plots/tables_machine.gp build/results/tables.csv build/results
# writes build/results/tables_machine.png and .svg. Without table 6 in the file nothing is drawn. The parts of T2
# (kernels, host, ...), some of which are almost 0, are left out.

csv    = ARGC >= 1 ? ARG1 : "build/results/tables.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "rows"; source = "make tables"
keep(i) = i == 1 || (begins(lines[i], "\"6 ") && field(lines[i], 3) ne "" && field(lines[i], 6) ne "" && !begins(lines[i], "\"6 of T2:"))
load "plots/read.gp"
rows = "$rows"
if (!any_row("\"6 ")) { exit status 0 }
file = folder . "/tables_machine"
heading = "This machine: replayed step times against measured ones"
subtitle = "replayed: traces of this machine, as recorded, and predictions from one device's trace " \
    . "on node this_machine; reference: measured on its CPU devices"
load "plots/deviations.gp"
