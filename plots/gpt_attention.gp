# A layer's attention with its scores in memory and tile by tile, over the length of sequences, from the CSV that `make bench-gpt`
# writes:
#     gnuplot -c plots/gpt_attention.gp build/results/gpt.csv build/results
# writes build/results/gpt_attention.png and .svg. Left: time of forward and backward; right: the activations of the whole network.

csv    = ARGC >= 1 ? ARG1 : "build/results/gpt.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "csv"; source = "make bench-gpt"
load "plots/read.gp"
csv = "$csv"
file = folder . "/gpt_attention"

forms = "scores tiles"
name(form) = form eq "scores" ? "scores in memory" : "tile by tile"
is_shown(form) = stringcolumn("part") eq "attention" && stringcolumn("form") eq form
x_of(form) = is_shown(form) ? column("context") : NaN

tics = ""; sequences = 0; runs = 0; cpu = ""; least = 1e9; most = 0
note(T) = (tics = strstrt(tics, sprintf('"%d"', T)) > 0 ? tics : tics . sprintf('%s"%d" %d', tics eq "" ? "" : ", ", T, T), \
    least = T < least ? T : least, most = T > most ? T : most, \
    sequences = column("batch"), runs = column("runs"), cpu = stringcolumn("cpu"), 0)
set table $ignored
plot csv using (is_shown("tiles") ? note(column("context")) : 0):(0) with table
unset table

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1500, 650) } else { eval open_svg(file, 1500, 650) }
    set multiplot layout 1,2 margins 0.07,0.98,0.13,0.83 spacing 0.09,0 \
        title sprintf("Attention of %d sequences: scores in memory, and tile by tile", sequences) font title_font noenhanced
    set label 1 sprintf("%s, one core; times measured: medians of %d run%s, bars from the least to the most", cpu, runs, runs == 1 ? "" : "s") at screen 0.5,0.9 center noenhanced
    set logscale xy
    set xlabel "T, tokens of a sequence"
    set xrange [least / 1.3:most * 1.3]
    eval "set xtics (" . tics . ")"
    set ylabel "forward and backward of a layer [ms]"
    set key left top
    plot for [f = 1:2] csv using (x_of(word(forms, f))):"ms":"ms_min":"ms_max" with yerrorlines ls f title name(word(forms, f))
    unset label 1
    set ylabel "activations of the network [MiB]"
    plot for [f = 1:2] csv using (x_of(word(forms, f))):(column("activations_bytes") / 2.0 ** 20) with linespoints ls f title name(word(forms, f))
    unset multiplot
    unset output
}
print file . ".png"
print file . ".svg"
