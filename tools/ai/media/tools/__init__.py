"""The tools of images and videos."""
