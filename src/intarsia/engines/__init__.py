"""Query engines that run over data sets, each told here what they do not push by themselves."""
