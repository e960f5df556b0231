# Table 4: the memory of a device, by category: DP's device 0, its other devices, and a rank of DDP:
#     gnuplot -c plots/tables_memory.gp build/results/tables.csv build/results
# writes build/results/tables_memory.png and .svg. Without table 4 in the file nothing is drawn.

csv    = ARGC >= 1 ? ARG1 : "build/results/tables.csv"
folder = ARGC >= 2 ? ARG2 : "build/results"
load "plots/style.gp"
comma = " "
path = csv; block = "rows"; source = "make tables"
load "plots/read.gp"
rows = "$rows"
if (!any_row("\"4 ")) { exit status 0 }

array categories[8] = ["parameter", "gradient", "bucket", "optimizer", "activation", "input", \
    "gathered output", "workspace"]
color(i) = word("#0072B2 #D55E00 #E69F00 #009E73 #56B4E9 #CC79A7 #000000 #909090", i)
file = folder . "/tables_memory"

# A bar for each N = 1, 2, 4, 8, in three groups; heights come from the rows, one by one.
array heights[12]
slot(group, n)  = group * 4 + (n == 1 ? 1 : n == 2 ? 2 : n == 4 ? 3 : 4)
put(i, bytes) = (heights[i] = bytes / 2**20, 0)
read(quantity) = stringcolumn("table") ne quantity ? 0 : \
    stringcolumn("mode") eq "DP  device 0" ? \
        put(slot(0, column("n")), column("ours")) + put(slot(2, column("n")), column("reference")) : \
    stringcolumn("mode") eq "DP  others" ? put(slot(1, column("n")), column("ours")) : 0

do for [kind in "png svg"] {
    if (kind eq "png") { eval open_png(file, 1600, 800) } else { eval open_svg(file, 1600, 800) }
    set multiplot layout 1,2 margins 0.065,0.985,0.16,0.80 spacing 0.075 \
        title "Memory of a device, by category, for N devices (Adam, 64 samples a step over all of them)" \
        font title_font noenhanced
    set label 1 "measured: peaks of the accounting on CPU devices" at screen 0.5,0.915 center noenhanced
    do for [model in "mlp convnet"] {
        set ylabel model . ": held at most [MiB]" noenhanced
        set xrange [-0.8:13.8]
        set yrange [0:*]
        unset xtics
        set xtics nomirror ("1" 0, "2" 1, "4" 2, "8" 3, "2" 6, "4" 7, "8" 8, "1" 10, "2" 11, "4" 12, "8" 13)
        set label 2 "DP, device 0" at 1.5, graph -0.105 center
        set label 3 "DP, others"   at 6.5, graph -0.105 center
        set label 4 "DDP, a rank"  at 11.5, graph -0.105 center
        set key at screen 0.5,0.885 center top maxrows 2 width -2 samplen 1 horizontal noenhanced
        set style fill solid 1 noborder
        array base[12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        set print $bars
        print "category,place,bottom,top"
        do for [c = 1:8] {
            do for [i = 1:12] { heights[i] = 0 }
            set table $ignored
            plot rows using (read("4 " . model . "  adam: " . categories[c] . "  bytes")):(0) with table
            unset table
            do for [i = 1:12] {
                group = (i - 1) / 4; k = (i - 1) % 4
                print sprintf("%d,%g,%.9g,%.9g", c, group * 5 + k, base[i], base[i] + heights[i])
                base[i] = base[i] + heights[i]
            }
        }
        unset print
        plot for [c = 1:8] $bars using (int($1) == c && $4 > $3 ? $2 : NaN):3:($2 - 0.38):($2 + 0.38):3:4 \
            with boxxyerror lc rgb color(c) title model eq "mlp" ? categories[c] : ""
        unset label 1
    }
    unset multiplot
    unset output
}
print file . ".png"
print file . ".svg"
