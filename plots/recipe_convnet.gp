# The recipe convnet: loss per epoch and the loss that the course's script printed, from the CSV of
# labs/bench/recipes/recipes.sh:
#     gnuplot -c plots/recipe_convnet.gp build/results/recipe_convnet.csv build/results
# writes build/results/recipe_convnet.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/recipe_convnet.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
comma = " "
path = csv; block = "csv"; source = "make recipes RECIPE=convnet"
load "plots/read.gp"
csv = "$csv"
set datafile missing "nan"

# --- contents of the file -----------------------------------------------------------------------------------------

machine = ""; data = ""; epochs = 0; any_pytorch = 0; most = 0
larger(a, b) = a > b ? a : b
note(dummy) = (data = stringcolumn("data"), epochs = column("epoch"), \
               any_pytorch = any_pytorch || stringcolumn("pytorch") ne "nan", \
               most = larger(most, larger(column("loss"), column("course"))), \
               machine = sprintf("%s; %s, %d cores, %s", stringcolumn("device"), stringcolumn("cpu"), int(column("cores")), \
                                 stringcolumn("date")[1:10]), 0)
set table $ignored
plot csv using (note(0)):(0) with table
unset table

# --- the figure -----------------------------------------------------------------------------------------------------

file = folder . "/recipe_convnet"
do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1100, 700) } else { eval open_svg(file, 1100, 700) }
    set margins screen 0.085, screen 0.975, screen 0.125, screen 0.83
    set label 1 "convnet with batch norm, 4 ranks of 100, SGD, lr 1e-4" at screen 0.5,0.95 center font title_font noenhanced
    set label 2 sprintf("lockstep measured, one run: %s", machine) at screen 0.5,0.905 center noenhanced
    set label 3 sprintf("lockstep's data: %s", data) at screen 0.5,0.866 center noenhanced
    set xlabel "epoch"
    set ylabel "mean loss of the epoch"
    set xrange [0.5:epochs + 0.5]
    set yrange [0:most * 1.1]
    set xtics 1
    set key bottom left
    set pointsize 1
    pytorch = any_pytorch ? ', csv using "epoch":"pytorch" with points lc rgb color_dp lw 2 pt 6 ps 1.8 title "PyTorch, same data as lockstep"' : ""
    eval 'plot csv using "epoch":"loss" with linespoints ls 2 ps 0.7 title "lockstep"' . pytorch . \
        ', csv using "epoch":"course" with linespoints ls 3 pt 9 ps 1 title "the course''s script, on MNIST with 4 GPUs"'
    unset output
    print file . "." . kind
}
