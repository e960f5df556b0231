/* How the page looks: CSS, for screens from 380 pixels on and for A4. */
#ifndef LABS_COURSE_REPORT_STYLE_H
#define LABS_COURSE_REPORT_STYLE_H

extern const char *const style_texts[]; /* one after the other; NULL ends them */

#endif
