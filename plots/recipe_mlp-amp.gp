# The recipe mlp-amp: loss per epoch and activation memory in the three precisions, from the CSV of labs/bench/recipes/recipes.sh:
#     gnuplot -c plots/recipe_mlp-amp.gp build/results/recipe_mlp-amp.csv build/results
# writes build/results/recipe_mlp-amp.png and .svg.

csv    = ARGC >= 1 ? ARG1 : "build/results/recipe_mlp-amp.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
comma = " "
path = csv; block = "csv"; source = "make recipes RECIPE=mlp-amp"
load "plots/read.gp"
csv = "$csv"

# --- contents of the file -----------------------------------------------------------------------------------------

precisions = "fp32 fp16 bf16"
precision(i) = word(precisions, i)
is(i) = stringcolumn("precision") eq precision(i)
colors = color_ideal . " " . color_dp . " " . color_ddp
set style line 21 lc rgb color_ideal lw 2.5 pt 7 ps 1.2
set style line 22 lc rgb color_dp    lw 2.5 pt 4 ps 1.7 dt (8,6)
set style line 23 lc rgb color_ddp   lw 2.5 pt 8 ps 1.7 dt (2,5)

machine = ""; data = ""; epochs = 0; most = 0; mlp_fp32 = 1; convnet_fp32 = 1
larger(a, b) = a > b ? a : b
note(dummy) = (data = stringcolumn("data"), epochs = larger(epochs, column("epoch")), most = larger(most, column("loss")), \
               is(1) ? (mlp_fp32 = column("activation_bytes"), convnet_fp32 = column("convnet_activation_bytes")) : 0, \
               machine = sprintf("%s; %s, %d cores, %s", stringcolumn("device"), stringcolumn("cpu"), int(column("cores")), \
                                 stringcolumn("date")[1:10]), 0)
set table $ignored
plot csv using (note(0)):(0) with table
unset table

# --- the figure -----------------------------------------------------------------------------------------------------

last_epoch(y) = column("epoch") == epochs ? column(y) : NaN
file = folder . "/recipe_mlp-amp"
do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1600, 700) } else { eval open_svg(file, 1600, 700) }
    set multiplot layout 1,2 margins 0.065,0.985,0.135,0.80 spacing 0.085 \
        title "mlp 784-256-10, Adam, lr 1e-3, batch 64: automatic mixed precision" font title_font noenhanced
    set label 1 sprintf("measured, one run of each: %s", machine) at screen 0.5,0.905 center noenhanced
    set label 2 sprintf("data: %s", data) at screen 0.5,0.866 center noenhanced
    set xlabel "epoch"
    set xrange [0.8:epochs + 0.2]
    set xtics 1
    set ylabel "mean loss of the epoch"
    set yrange [0:most * 1.1]
    set key top right
    plot for [i = 1:3] csv using (is(i) ? column("epoch") : NaN):"loss" with linespoints ls 20 + i title precision(i)

    unset label 1
    unset label 2
    unset xlabel
    set xrange [0.3:7.7]
    set xtics ("mlp, batch 64" 2, "convnet, batch 100" 6)
    set ylabel "peak memory of activations [% of fp32]"
    set yrange [0:140]
    set ytics 25
    set boxwidth 0.8
    set style fill solid 0.85
    bar(i) = last_epoch("activation_bytes") / mlp_fp32 * 100
    convnet_bar(i) = last_epoch("convnet_activation_bytes") / convnet_fp32 * 100
    plot for [i = 1:3] csv using (is(i) ? i : NaN):(bar(i)) with boxes lc rgb word(colors, i) title precision(i), \
         for [i = 1:3] csv using (is(i) ? i + 4 : NaN):(convnet_bar(i)) with boxes lc rgb word(colors, i) notitle, \
         for [i = 1:3] csv using (is(i) ? i : NaN):(bar(i)):(sprintf("%.0f KB", last_epoch("activation_bytes") / 1e3)) \
             with labels offset 0,0.8 notitle, \
         for [i = 1:3] csv using (is(i) ? i + 4 : NaN):(convnet_bar(i)):(sprintf("%.1f MB", last_epoch("convnet_activation_bytes") / 1e6)) \
             with labels offset 0,0.8 notitle
    unset multiplot
    unset output
    print file . "." . kind
}
