# A device's memory with each technique that saves memory, by category, a bar per technique, from the CSV that `make
# bench-memory` writes:
#     gnuplot -c plots/memory_techniques.gp build/results/memory.csv build/results
# writes build/results/memory_techniques.png and .svg. A panel per network, for the greatest number of devices, and the
# techniques that have a row for it.

csv    = ARGC >= 1 ? ARG1 : "build/results/memory.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
path = csv; block = "csv"; source = "make bench-memory"
load "plots/read.gp"
csv = "$csv"
file = folder . "/memory_techniques"

# --- contents of the file -----------------------------------------------------------------------------------------

categories = "parameters gradients buckets optimizer activations input gathered_output workspace"
colors     = "#0072B2 #D55E00 #E8853A #009E73 #56B4E9 #F0C05A #CC79A7 #999999"
part(i)    = column(word(categories, i) . "_bytes") / 2.0 ** 20
up_to(i)   = i == 0 ? 0 : up_to(i - 1) + part(i)
all        = words(categories)

# Names without blanks, for the lists.
joined(text) = text eq "" ? "" : strstrt(text, " ") == 0 ? text : joined(text[1:strstrt(text, " ") - 1] . "_" . text[strstrt(text, " ") + 1:*])
has(texts, text) = strstrt(" " . texts . " ", " " . text . " ") > 0
place(list, text) = sum [i = 1:words(list)] (word(list, i) eq text ? i : 0)

networks = ""; techniques = ""; n_most = 0; node = ""; used = ""
note(network, technique, n) = ( \
    networks = has(networks, network) ? networks : networks . " " . network, \
    techniques = n > n_most ? technique : n < n_most || has(techniques, technique) ? techniques : techniques . " " . technique, \
    n_most = n > n_most ? n : n_most, how = stringcolumn("how"), node = n == n_most && stringcolumn("how") eq "replayed" ? stringcolumn("node") : node, 0)
set table $ignored
plot csv using (note(stringcolumn("model"), joined(stringcolumn("technique")), column("n"))):(0) with table
do for [i = 1:all] { # categories that are not empty
    most = 0
    plot csv using (most = part(i) > most ? part(i) : most):(0) with table
    if (most > 0.1) { used = used . sprintf(" %d", i) }
}
unset table

# --- bars ---------------------------------------------------------------------------------------------------------

is_shown(network) = stringcolumn("model") eq network && column("n") == n_most
x_of(network)     = is_shown(network) ? place(techniques, joined(stringcolumn("technique"))) : NaN
half_width        = 0.36
with_blanks(text) = strstrt(text, "_") == 0 ? text : with_blanks(text[1:strstrt(text, "_") - 1] . " " . text[strstrt(text, "_") + 1:*])
tics = ""
do for [i = 1:words(techniques)] { tics = tics . sprintf('%s"%s" %d', i > 1 ? ", " : "", with_blanks(word(techniques, i)), i) }

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1500, 700) } else { eval open_svg(file, 1500, 700) }
    set multiplot layout 1,words(networks) margins 0.06,0.86,0.2,0.83 spacing 0.05,0 \
        title sprintf("Memory of each of %d devices by category, under each technique", n_most) font title_font noenhanced
    set label 1 sprintf("%s; on each bar its total, and the step time relative to plain DDP", node eq "" ? "measured" : "counted on meta devices, times replayed on " . node) at screen 0.5,0.92 center noenhanced
    do for [p = 1:words(networks)] {
        network = word(networks, p)
        y_most = 0
        set table $ignored
        plot csv using (y_most = is_shown(network) && up_to(all) > y_most ? up_to(all) : y_most):(0) with table
        unset table
        set title network noenhanced
        set xrange [0.4:words(techniques) + 0.6]
        set yrange [0:y_most * 1.35]
        eval "set xtics (" . tics . ") scale 0 rotate by 30 right noenhanced"
        if (p == 1) { set ylabel "memory that a device holds [MiB]" } else { unset ylabel }
        bars = ""
        do for [k = 1:words(used)] {
            i = int(word(used, k))
            bars = bars . sprintf('%s csv using (x_of(network)):(0):(x_of(network) - half_width):(x_of(network) + half_width):(up_to(%d)):(up_to(%d)) with boxxyerror fs solid 1 border lc rgb "white" fc rgb "%s" %s', \
                bars eq "" ? "" : ",", i - 1, i, word(colors, i), p < words(networks) ? "notitle" : sprintf('title "%s"', word(categories, i) eq "gathered_output" ? "gathered output" : word(categories, i)))
        }
        if (p == words(networks)) { set key at screen 0.995,0.84 right top vertical maxrows 20 invert samplen 1.2 spacing 1.25 noenhanced reverse Left width -1 } else { unset key }
        eval 'plot ' . bars . ', csv using (x_of(network)):(up_to(all)):(sprintf("%.0f; %.2fx", up_to(all), column("step_ratio"))) with labels rotate by 90 left offset 0,0.5 notitle'
        unset label 1
    }
    unset multiplot
    unset output
}
print file . ".png"
print file . ".svg"
