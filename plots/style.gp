# Shared by all figures: the style, and the terminals for PNG and SVG. Load it first: load "plots/style.gp"

set encoding utf8
set datafile separator comma
set datafile columnheaders
set datafile missing NaN

# Colours that colour-blind readers can distinguish, also in print (Okabe and Ito): DP, DDP; grey: ideal.
color_dp    = "#D55E00"
color_ddp   = "#0072B2"
color_ideal = "#707070"
color_grid  = "#CFCFCF"

set style line 1 lc rgb color_dp    lw 2.5 pt 7 ps 1
set style line 2 lc rgb color_ddp   lw 2.5 pt 5 ps 1
set style line 3 lc rgb color_ideal lw 2   dt (8,6)

set grid ytics lc rgb color_grid lw 1 dt 1
set border 3 lw 1.2
set tics nomirror out
set errorbars 0.7
set format "%g"
set key Left reverse samplen 3 spacing 1.2

# A path in a form that gnuplot always takes for a file: after "<" or "|" it would start a program.
as_file(path) = path[1:1] eq "/" ? path : "./" . path

# For eval: opens FILE.png or FILE.svg of that many pixels, and sets title_font and small_font. (PNG counts fonts in points, SVG in pixels.)
open_png(file, width, height) = (picture = as_file(file . ".png"), \
    sprintf('title_font = ",16"; small_font = ",13"; set terminal pngcairo size %d,%d pointscale 1.5 font "DejaVu Sans,14" background rgb "white"; set output picture', width, height))
open_svg(file, width, height) = (picture = as_file(file . ".svg"), \
    sprintf('title_font = ",20"; small_font = ",16"; set terminal svg size %d,%d font "DejaVu Sans,17" background rgb "white"; set output picture', width, height))

# Defaults for plots/read.gp, which a script may change.
comma = "‚"
keep(i) = 1

# The phases of a step in their order, and their colours: communication warm, computing cool, the batch's upload violet,
# the rest grey.
phases = "loader input scatter replicate broadcast forward gather loss backward reduce all-reduce optimizer graph other waiting"
phase_colors = "#999999 #A99BD1 #F0C05A #E69F00 #CC79A7 #56B4E9 #E8853A #9AD0C2 #0072B2 #D55E00 #A63D00 #009E73 #4B6FA5 #C8C8C8 #E4E4E4"
phase_number(name) = sum [i = 1:words(phases)] (word(phases, i) eq name ? i : 0)
phase_color(name) = phase_number(name) > 0 ? word(phase_colors, phase_number(name)) : "#C8C8C8"
