# Whether a prediction is what came out: exit status 0 or 1.
# usage: MINE=PREDICTION IS=RESULT awk -f labs/course/is_right.awk
#
# A number is right to the digits that it has, two at least: 2.3 is right of 2.30974, and 84 of 83.8; but 2 is not. "About" before
# it and a unit behind it say nothing. Of words all must be there. Behind either a reason may stand ("3, because ..."), but no other
# answer: "19 or 20" and "scatter, gather" list, and a list is no prediction.
function clean(text) {
    text = tolower(text)
    gsub(/[ \t\r\n]+/, " ", text)
    gsub(/^ | $/, "", text)
    while (match(text, /[0-9],[0-9][0-9][0-9]/)) text = substr(text, 1, RSTART) substr(text, RSTART + 2)
    return text
}

# Whether nothing follows, or a reason.
function is_reason(rest) {
    return rest ~ /^[.!]?$/ || rest ~ /^。?$/ || rest ~ /^\.? ?[(;:]/ || rest ~ /^\. / || rest ~ /^ -+ / || rest ~ /^,? (because|since|as|for|so) / ||
        rest ~ /^ ?(（|；|：|。|—)/ || rest ~ /^ ?(，|,) ?(因|由|所以|理由)/ || rest ~ /^ ?(因为|由于)/
}

function number_is_right(mine, is, digits, decimals, rest, off) {
    sub(/^(about|around|roughly|some|ca\.?|~|≈|约|大约|大概) */, "", mine)
    if (!match(mine, /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?/)) return 0
    digits = substr(mine, 1, RLENGTH)
    rest = substr(mine, RLENGTH + 1)
    if (digits ~ /\.$/) { digits = substr(digits, 1, length(digits) - 1); rest = "." rest }
    if (rest !~ /^ ?(or|to|and|because|since|as|for|so)( |$)/) sub(/^ ?(%|[a-z]+(\/[a-z]+)?|毫秒|秒|个|步|次|字节)/, "", rest)
    if (!is_reason(rest)) return 0
    if (digits + 0 == is + 0) return 1
    decimals = digits
    if (!sub(/^[^.]*\./, "", decimals)) decimals = ""
    sub(/e.*/, "", decimals)
    off = digits - is
    if (off < 0) off = -off
    rest = digits # how large the last digit is: by the exponent, and by the decimals
    if (!sub(/^[^e]*e/, "", rest)) rest = 0
    if (off > 0.5 * 10 ^ (rest - length(decimals)) * (1 + 1e-9)) return 0
    sub(/e.*/, "", digits)
    gsub(/[-+.]/, "", digits)
    sub(/^0+/, "", digits)
    return length(digits) >= 2
}

BEGIN {
    mine = clean(ENVIRON["MINE"])
    is = clean(ENVIRON["IS"])
    if (is ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?$/) exit !number_is_right(mine, is)
    exit !(is != "" && index(mine, is) == 1 && is_reason(substr(mine, length(is) + 1)))
}
