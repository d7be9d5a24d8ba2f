"""The laboratory on top of the library: data, training, experiments, the judge, reports and the command line."""
