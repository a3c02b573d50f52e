"""The report as one HTML file: pure functions from answers to elements and plots, and the files they are put into."""
