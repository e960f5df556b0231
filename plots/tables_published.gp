# Table 5: the deviation of replays from published measurements of other machines, row by row:
#     gnuplot -c plots/tables_published.gp build/results/tables.csv build/results
# writes build/results/tables_published.png and .svg. Without table 5 in the file nothing is drawn. Sums over rows, and
# figures that are inputs are left out.

csv    = ARGC >= 1 ? ARG1 : "build/results/tables.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "rows"; source = "make tables"
keep(i) = i == 1 || (begins(lines[i], "\"5 ") && field(lines[i], 3) ne "" && field(lines[i], 6) ne "" && !begins(lines[i], "\"5 one GPU") && \
    strstrt(field(lines[i], 1), "reference:") == 0)
load "plots/read.gp"
rows = "$rows"
if (!any_row("\"5 ")) { exit status 0 }
file = folder . "/tables_published"
heading = "Machines that others measured: replayed against measured"
subtitle = "replayed: nodes dgx1-v100, hgx-h100, pcie3-4gpu and dgx-a100, nearly all from one device's step; " \
    . "reference: measured by others, sources in tables.md"
load "plots/deviations.gp"
