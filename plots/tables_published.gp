# Table 5: how far the replays of machines that others measured are from what they measured, row by row:
#     gnuplot -c plots/tables_published.gp build/results/tables.csv build/results
# writes build/results/tables_published.png and .svg. Without table 5 in the file nothing is drawn. Sums over rows, and
# figures that are inputs, are left out.

csv    = ARGC >= 1 ? ARG1 : "build/results/tables.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
if (system("test -r '" . csv . "' && echo yes") ne "yes") {
    printerr "there is no " . csv . "; run: make tables"
    exit status 1
}
load "plots/style.gp"
if (system("grep -c '^\"5 ' '" . csv . "'") + 0 == 0) { exit status 0 }
rows = read_titled_csv(csv) \
    . " | awk -F, 'NR == 1 || (/^\"5 / && $3 != \"\" && $6 != \"\" && !/^\"5 one GPU/ && $1 !~ /reference:/)'"
file = folder . "/tables_published"
heading = "Machines that others measured: replayed against measured"
subtitle = "replayed: nodes dgx1-v100, hgx-h100, pcie3-4gpu and dgx-a100, from one device's step; " \
    . "reference: measured by others, sources in tables.md"
load "plots/deviations.gp"
